package main

import (
	"testing"

	"github.com/wherry-dev/wherry/cmd/internal/programtest"
)

// Everybody who builds wherry compiles and links each of these packages. Another module is a decision: to make it, run the
// test with -update and give in the commit the module's benefit and its own dependencies.
func TestWherryLinksNoMoreThanListed(t *testing.T) { programtest.Links(t, *update) }

func TestWherryAllocatesLittleBeforeMain(t *testing.T) {
	t.Parallel()
	programtest.Starts(t, 84_000)
}
