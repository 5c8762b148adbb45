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

// floorKey names the floor of an epoch. That of epoch 0 has the name from before there were others.
func floorKey(epoch int64) string {
	if epoch == 0 {
		return keyFloor
	}
	return fmt.Sprintf("%s-%d", keyFloor, epoch)
}

// RaiseFloor takes account of the time of issue of a verified document. Each epoch has a floor of its own,
// so that a thief's date ends with the epoch.
func RaiseFloor(tx *bbolt.Tx, epoch int64, issued time.Time) error {
	floor, err := LoadFloor(tx, epoch)
	if err != nil || !issued.After(floor) {
		return err
	}
	return state.Save(tx, state.Meta, floorKey(epoch), issued)
}

// LoadFloor returns the newest time of issue that was verified in an epoch; zero where nothing was.
func LoadFloor(tx *bbolt.Tx, epoch int64) (time.Time, error) {
	return state.Load[time.Time](tx, state.Meta, floorKey(epoch))
}

// IsFloor reports whether a key of state.Meta is that of a floor.
func IsFloor(key string) bool { return key == keyFloor || strings.HasPrefix(key, keyFloor+"-") }
