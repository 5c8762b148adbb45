package embed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A registration with much to do has one processor of two while others wait, and none after it has used more than they have.
func TestTheNextContentIsOfTheRegistrationThatHasUsedLeast(t *testing.T) {
	all := map[name]*content{}
	for key, registration := range map[string]string{"1": "evil", "2": "evil", "3": "evil", "4": "good", "5": "good", "6": "kind"} {
		all[name{assignment: key}] = &content{request: request{registration: registration}}
	}
	q := newQueue(all)
	next := func() string {
		key, _ := q.next()
		return key.assignment
	}
	require.Equal(t, "1", next())
	require.Equal(t, "4", next())
	require.False(t, q.done("good", time.Millisecond))
	require.Equal(t, "6", next())
	require.True(t, q.done("kind", time.Millisecond))
	require.False(t, q.done("evil", time.Second))
	require.Equal(t, "5", next())
	require.Equal(t, "2", next(), "nobody else waits")
	require.True(t, q.done("good", 2*time.Second))
	require.Equal(t, "3", next(), "one registration may have all processors")
	_, ok := q.next()
	require.False(t, ok)
	require.False(t, q.done("evil", time.Second))
	require.True(t, q.done("evil", time.Second))
}
