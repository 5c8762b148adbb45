package agenttest

import (
	"reflect"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
)

// Bolt is the database under a state file, which the agent's code has no way to reach: tests of the disk get between it
// and its file, and tests of thousands of transactions do not wait for it.
func Bolt(db *state.DB) *bbolt.DB {
	v := reflect.ValueOf(db).Elem().FieldByName("db")
	return *(**bbolt.DB)(unsafe.Pointer(v.UnsafeAddr()))
}
