package migrate

import (
	"testing"

	"github.com/wherry-dev/wherry/bundle/child/childtest"
	"github.com/wherry-dev/wherry/publisher/sandbox"
)

func TestMain(m *testing.M) { childtest.Main(m, sandbox.Name, sandbox.Child) }
