package agent

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
)

// refs are the names in the store's index.
func (s *site) refs() (names []string) {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, state.StoreDir, ocispec.ImageIndexFile))
	require.NoError(s.t, err)
	var index ocispec.Index
	require.NoError(s.t, json.Unmarshal(data, &index))
	for _, d := range index.Manifests {
		names = append(names, d.Annotations[ocispec.AnnotationRefName])
	}
	return names
}

func (s *site) count(folder string) int { return len(s.entries(folder)) }

// entries are the names in a folder of the state folder.
func (s *site) entries(folder string) (names []string) {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, folder))
	require.NoError(s.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestTheStoreKeepsWhatRunsAndWhatRanWellLast(t *testing.T) {
	const blobs = "store/blobs/sha256"
	s := newSite(t)
	engines := s.opts.Engines.Reconcilers
	publish := func(n int64) { s.publish(s.draft(n, map[string]string{"a-x/f": string(rune('a' + n))})) }
	publish(1)
	s.once()
	require.Equal(t, 3, s.count(blobs), "manifest, release document and layer")

	s.opts.Engines.Reconcilers = map[string]reconcilers.Reconciler{} // later releases fail
	for n := range int64(4) {
		publish(n + 2)
		require.Equal(t, bundle.Failed, s.once().Status.State)
	}
	require.Equal(t, []string{"bundles/dev/drone/s0-5", "bundles/dev/drone/s0-1"}, s.refs())
	require.Equal(t, 6, s.count(blobs))
	require.Equal(t, 1, s.count(content.TreesDir))

	s.opts.Engines.Reconcilers = engines
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	require.Equal(t, []string{"bundles/dev/drone/s0-5", "bundles/dev/drone/s0-1"}, s.refs(), "the one that ran well before is for a person who goes back")
	require.Equal(t, 6, s.count(blobs))
	publish(6)
	s.once()
	require.Equal(t, []string{"bundles/dev/drone/s0-6", "bundles/dev/drone/s0-5"}, s.refs())
	require.Equal(t, 6, s.count(blobs))
}

func TestTheSameContentUnderAnotherReleaseIsNotFetchedAgain(t *testing.T) {
	s := newSite(t)
	files := map[string]string{"a-x/f": "1"}
	s.publish(s.draft(1, files))
	s.once()
	s.publish(s.draft(2, files))
	s.registry.blobs.Store(0)
	require.EqualValues(t, 2, s.once().Status.Release.Running.Sequence)
	require.Zero(t, s.registry.blobs.Load())
	require.Equal(t, []string{"bundles/dev/drone/s0-2"}, s.refs(), "the store has its manifest all the same")
	require.Equal(t, 3, s.count("store/blobs/sha256"))
}

func TestADamagedIndexIsMadeAgain(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, store string){
		"cut short": func(t *testing.T, store string) {
			require.NoError(t, os.Truncate(filepath.Join(store, ocispec.ImageIndexFile), 20))
		},
		"lost": func(t *testing.T, store string) {
			require.NoError(t, os.Remove(filepath.Join(store, ocispec.ImageIndexFile)))
		},
		"the layout's file too": func(t *testing.T, store string) {
			require.NoError(t, os.Truncate(filepath.Join(store, ocispec.ImageIndexFile), 0))
			require.NoError(t, os.Truncate(filepath.Join(store, ocispec.ImageLayoutFile), 0))
		},
		"the whole store": func(t *testing.T, store string) { require.NoError(t, os.RemoveAll(store)) },
		"a blob of it": func(t *testing.T, store string) {
			entries, err := os.ReadDir(filepath.Join(store, "blobs/sha256"))
			require.NoError(t, err)
			for _, e := range entries {
				require.NoError(t, os.Truncate(filepath.Join(store, "blobs/sha256", e.Name()), 3))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
			s.once()
			damage(t, filepath.Join(s.dir, state.StoreDir))
			require.Equal(t, bundle.Compliant, s.once().Status.State)
			s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
			r := s.once()
			require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
			require.Equal(t, "bundles/dev/drone/s0-2", s.refs()[0])
			requireFile(t, s.host, "a-x/f", "2")
		})
	}
}

// A disk that fails in the middle of a transfer is this machine's fault, touches nothing that runs, and costs
// nothing twice.
func TestADiskThatFailsDuringATransfer(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
		t.Run(fault.Error(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
			s.once()
			before, _ := trees()
			d := s.publish(s.draft(2, before))
			layer := s.layer(d)
			data := s.blobBytes(layer)
			s.opts.Content.Download.Chunk = 1 << 10
			stop := len(data)/2 + 100
			over := s.stallAfter(layer.Digest, data, stop)
			s.agent(func(a *Agent) {
				whole := a.content.DownloadBlob
				a.content.DownloadBlob = func(ctx context.Context, from oci.Target, blob ocispec.Descriptor, opts oci.DownloadOptions) error {
					ctx, cancel := context.WithCancel(ctx)
					opts.Progress = func(have int64) {
						if have == int64(stop) {
							cancel() // the disk takes no more
						}
					}
					_ = whole(ctx, from, blob, opts)
					return &oci.DiskError{Err: &fs.PathError{Op: "write", Path: "store/parts", Err: fault}}
				}
				r := a.Once(context.Background(), 0)
				require.Equal(t, Broken, r.Verdict)
				require.Contains(t, r.Error, fault.Error())
				require.Equal(t, "LocalFailure", r.Status.Reason)
				require.Equal(t, bundle.Compliant, r.Status.Items[0].State)
				require.EqualValues(t, 1, r.Status.Release.Running.Sequence)

				a.makePass(context.Background(), scope{}) // which asks for no release
				status, err := a.Status()
				require.NoError(t, err)
				require.Equal(t, "LocalFailure", status.Reason, "nobody has mended it")
			})
			over()
			begun := s.ranges(layer.Digest, data)
			r := s.once()
			require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
			require.Len(t, *begun, 1)
			require.GreaterOrEqual(t, (*begun)[0], stop-1<<10, "at most a chunk is transferred again")
		})
	}
}

func TestWhatRanWellIsKnownToTheNextStart(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.agent(func(a *Agent) {
		p := newPass(a, scope{})
		require.NoError(t, p.remember())
		require.Equal(t, p.running.Digest(), p.good.Digest())
	})
}

func TestAnUpdateWritesOnlyWhatHasChanged(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1", "b-x/f": "1", "c-x/f": "3"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	require.Equal(t, 2, s.count(content.ContentsDir), "what is the same is there once")
	before := map[string]os.FileInfo{}
	for _, e := range s.entries(content.ContentsDir) {
		info, err := os.Stat(filepath.Join(s.dir, content.ContentsDir, e, "f"))
		require.NoError(t, err)
		before[e] = info
	}

	s.publish(s.draft(2, map[string]string{"a-x/f": "1", "b-x/f": "2", "c-x/f": "3"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)

	for _, file := range []string{"a-x/f:1", "b-x/f:2", "c-x/f:3"} {
		path, content, _ := strings.Cut(file, ":")
		requireFile(t, s.host, path, content)
	}
	require.Equal(t, 3, s.count(content.ContentsDir))
	same := 0
	for _, e := range s.entries(content.ContentsDir) {
		info, err := os.Stat(filepath.Join(s.dir, content.ContentsDir, e, "f"))
		require.NoError(t, err)
		if old := before[e]; old != nil && os.SameFile(old, info) {
			same++
		}
	}
	require.Equal(t, 2, same)
}

func TestAListThatNamesWhatIsHereIsHeldAgainstItsTree(t *testing.T) {
	s := newSite(t)
	good := s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	d := s.draft(2, map[string]string{"a-x/f": "2"})
	d.ChangeList = func(list []bundle.Assignment) {
		list[0].Content = bundle.ContentDigest([]bundle.File{{Path: "f", Data: []byte("1")}})
	}
	s.publish(d)

	r := s.once()

	require.Equal(t, bundle.Rejected, r.Status.State)
	require.Equal(t, string(bundle.BadContent), r.Status.Reason)
	require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
	requireFile(t, s.host, "a-x/f", "1")
}
