package publisher

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/scheduler"
)

func TestAPlanCountsTheArtifactsThatAreNewlyCarried(t *testing.T) {
	const one, two = "sha256:1111111111111111111111111111111111111111111111111111111111111111", "sha256:2222222222222222222222222222222222222222222222222222222222222222"
	needs := func(name, carry string, images ...string) scheduler.Assignment {
		a := scheduler.Assignment{Name: name, Settings: scheduler.Settings{Carry: carry}}
		for i, d := range images {
			image := "example.com/x@" + d
			a.Files = append(a.Files, scheduler.File{Path: string(rune('a'+i)) + ".yaml", Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: \"" + image + "\"}]}\n")})
			a.Pinned = append(a.Pinned, scheduler.Pinned{Type: "image", Reference: image, Digest: d, Size: int64(100 * (i + 1))})
		}
		return a
	}
	planned := func(as ...scheduler.Assignment) *plan {
		tree, _, err := pack.Tree(as, nil)
		require.NoError(t, err)
		return &plan{kept: kept{rendered: as}, content: content{tree: tree}}
	}
	tree := func(p *plan) *published.Tree {
		opened, err := published.ReadLayer(bytes.NewReader(p.tree.Gzip), p.tree.Content)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, opened.Close()) })
		return opened
	}
	for _, c := range []struct {
		name         string
		now, earlier *plan
		want         int64
	}{
		{"the first release", planned(needs("a", "images", one, two), needs("b", "", one)), nil, 300},
		{"two assignments with one image", planned(needs("a", "images", one), needs("b", "images", one)), nil, 100},
		{"one image is new", planned(needs("a", "images", one, two)), planned(needs("a", "images", one)), 200},
		{"carry is new", planned(needs("a", "images", one)), planned(needs("a", "", one)), 100},
		{"nothing is carried any more", planned(needs("a", "", one)), planned(needs("a", "images", one)), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var earlier *published.Tree
			if c.earlier != nil {
				earlier = tree(c.earlier)
			}
			got, err := newlyCarried(c.now, earlier)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}
