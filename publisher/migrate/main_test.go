package migrate

import (
	"io"
	"testing"

	"github.com/wherry-dev/wherry/bundle/child/childtest"
	"github.com/wherry-dev/wherry/publisher/embed/chart/render"
	"github.com/wherry-dev/wherry/publisher/embed/kustomization"
	"github.com/wherry-dev/wherry/publisher/sandbox"
)

func TestMain(m *testing.M) { childtest.Main(m, sandbox.Name, renderer) }

func renderer(stdin io.Reader, stdout io.Writer) int {
	return sandbox.Child(stdin, stdout, sandbox.Engines{Chart: render.Do, Kustomization: kustomization.Do})
}
