package trust

import (
	"fmt"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
)

// keyFloor is the record of state.Meta with the newest time of issue of a verified document; see floorKey.
const keyFloor = "floor"

// floorKey returns the key of an epoch's floor. Epoch 0 has the key from before there were other epochs.
func floorKey(epoch int64) string {
	if epoch == 0 {
		return keyFloor
	}
	return fmt.Sprintf("%s-%d", keyFloor, epoch)
}

// RaiseFloor raises the floor of an epoch to the time of issue of a verified document. Each epoch has a floor of its own,
// so that a date in the far future, signed with a stolen key, has no effect after the epoch.
func RaiseFloor(tx *bbolt.Tx, epoch int64, issued time.Time) error {
	floor, err := LoadFloor(tx, epoch)
	if err != nil || !issued.After(floor) {
		return err
	}
	return state.Save(tx, state.Meta, floorKey(epoch), issued)
}

// LoadFloor returns the newest verified time of issue in an epoch; zero if there is none.
func LoadFloor(tx *bbolt.Tx, epoch int64) (time.Time, error) {
	return state.Load[time.Time](tx, state.Meta, floorKey(epoch))
}

// IsFloor reports whether a key of state.Meta belongs to a floor.
func IsFloor(key string) bool { return key == keyFloor || strings.HasPrefix(key, keyFloor+"-") }
