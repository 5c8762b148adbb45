package embed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A registration with much to do has one processor of two while others wait, and none once it has used more turns than they have.
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
	require.Equal(t, "4", next(), "of one that has none")
	require.False(t, q.done("good", turn/2))
	require.Equal(t, "5", next(), "whose child waits")
	require.True(t, q.done("good", turn/2))
	require.True(t, q.done("evil", turn), "its child waits for no other")
	require.Equal(t, "6", next())
	require.Equal(t, "2", next(), "nobody else waits")
	require.True(t, q.done("kind", 3*turn))
	require.Equal(t, "3", next(), "one registration may have all processors")
	_, ok := q.next()
	require.False(t, ok)
	require.False(t, q.done("evil", 2*time.Second))
	require.True(t, q.done("evil", 2*time.Second))
}
