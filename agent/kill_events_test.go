package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
)

// happen makes an event happen before the agent starts, and returns the special settings of the start.
func (w *realm) happen(event string) (o order) {
	if event == afterNothing {
		w.anew()
	}
	if event == afterRotation || w.taken {
		o.Trust = w.takeOver(event == afterRotation)
	}
	o.Resume = true // what a person has begun before
	switch event {
	case afterGivingUp:
		w.release(false)
		w.run(o)
		w.release(true)
		o.Deadline, o.Passes = time.Nanosecond, 5
	case afterOperator:
		w.release(false)
		w.run(o)
		o.RollBack = w.latest.Digest.String()
		w.release(false)
		w.run(order{Trust: o.Trust, Resume: true})
		o.Pause = true
	case afterVoid:
		o.Trust = w.takeOver(true)
		w.release(false)
		w.run(order{Trust: o.Trust, Resume: true})
		back := w.latest.Digest.String()
		w.release(false)
		w.run(order{Trust: o.Trust, Resume: true})
		w.run(order{Trust: o.Trust, RollBack: back, Passes: -1})
		o.Trust, o.Resume = append(o.Trust, w.newEpoch()), false
	case afterFailing:
		w.release(true)
	case afterRefused:
		w.release(false)
		w.refused()
	case afterRemoval:
		w.release(false)
		w.run(o)
		name, _, _ := strings.Cut(sortedKeys(w.files)[0], "/")
		maps.DeleteFunc(w.files, func(path, _ string) bool { return strings.HasPrefix(path, name+"/") })
		d := w.draftNext()
		w.published(d, w.publish(d))
	case afterWithdrawn:
		w.release(false)
		w.run(o)
		w.refused()
		w.run(o)
		require.NoError(w.t, w.repo.Tag(context.Background(), w.latest, bundle.LatestTag))
	case afterDelta:
		w.release(false)
		w.run(o)
		w.releaseWithDelta()
	case afterImport:
		w.release(false)
		o.Import = w.export(w.stream)
		w.registry.away.Store(true)
		w.tally.imports++
	case afterHubAway:
		w.release(false)
		w.mu.Lock()
		w.hubAway, w.portal = true, w.random.IntN(2) == 0
		w.mu.Unlock()
	case afterDrift:
		w.tamper()
	case afterOffline:
		w.release(false)
		w.registry.away.Store(true)
	default:
		w.release(w.random.IntN(5) == 0)
	}
	return o
}

// run is a start of the agent that nobody disturbs.
func (w *realm) run(o order) {
	w.tally.starts++
	require.False(w.t, w.start(o, kill{}))
	w.judge(w)
}

// newEpoch returns the document of a new epoch, which also comes by the registry.
func (w *realm) newEpoch() []byte {
	w.epoch++
	w.trusted = w.trusted.Next(time.Now())
	w.trusted.Document.Epoch = w.epoch
	w.offerTrust(w.trusted)
	envelope, err := w.trusted.Envelope()
	require.NoError(w.t, err)
	return envelope
}

// takeOver returns the trust documents to install, and publishes the next version, with a new key.
func (w *realm) takeOver(next bool) [][]byte {
	first, err := w.version1.Envelope()
	require.NoError(w.t, err)
	if next && w.taken {
		w.trusted = w.trusted.Next(time.Now())
		w.key = agenttest.NewKey().(*ecdsa.PrivateKey)
		w.trusted.Document.Release = agenttest.Role(1, w.key)
		if w.random.IntN(3) == 0 {
			w.epoch++
			w.trusted.Document.Epoch = w.epoch
		}
		w.offerTrust(w.trusted)
	}
	if !w.taken {
		w.taken, w.epoch = true, 1
	}
	return [][]byte{first}
}

// edit changes what the next release holds.
func (w *realm) edit(bad bool) {
	files := maps.Clone(w.files)
	if files == nil {
		files = map[string]string{}
	}
	names := []string{"a-x", "b-x", "c-x", "d-x", "e-x", "f-x"}
	for path, content := range files { // replace bad content
		if content[:3] == rejected {
			files[path] = w.content()
		}
	}
	name := names[w.random.IntN(len(names))]
	switch _, there := files[name+"/1"]; {
	case there && len(files) > 6 && w.random.IntN(2) == 0:
		delete(files, name+"/1")
		delete(files, name+"/2")
	case there && w.random.IntN(3) == 0:
		delete(files, name+"/2")
		files[name+"/1"] = w.content()
	default:
		files[name+"/1"], files[name+"/2"] = w.content(), w.content()
	}
	if w.sequence%2 == 0 || len(files) < 4 {
		name = names[w.random.IntN(len(names))]
		files[name+"/1"], files[name+"/2"] = w.content(), w.content()
	}
	if bad {
		name = names[w.random.IntN(len(names))]
		files[name+"/1"], files[name+"/2"] = rejected+w.content(), w.content()
	}
	w.files = files
}

// content compresses badly, so that the layer has some chunks.
func (w *realm) content() string {
	var b bytes.Buffer
	for range 40 {
		fmt.Fprintf(&b, "%016x", w.random.Uint64())
	}
	return b.String()
}

func (w *realm) draftNext() draft {
	w.sequence++
	d := agenttest.New(w.stream, w.sequence, time.Now(), w.files, w.key)
	d.Release.Epoch = w.epoch
	d.ChangeList = func(as []bundle.Assignment) { // in two waves, the first of which is a chain
		for i := range as {
			as[i].Wave = i / 4
			if i == 1 || i == 2 {
				as[i].DependsOn = []string{as[i-1].Name}
			}
		}
	}
	return draft{d, w.repo}
}

func (w *realm) release(bad bool) {
	w.edit(bad)
	d := w.draftNext()
	w.published(d, w.publish(d))
}

func (w *realm) releaseWithDelta() {
	before := w.newest
	w.edit(false)
	d := w.draftNext()
	data, err := delta.Make(w.tar(before), w.tar(d))
	require.NoError(w.t, err)
	layer := bundle.NewBlob(delta.MediaType, data)
	layer.Descriptor.Annotations = map[string]string{delta.AnnotationFrom: digest.FromBytes(w.tar(before)).String()}
	require.NoError(w.t, w.repo.Push(context.Background(), layer.Descriptor, bytes.NewReader(data)))
	d.ChangeManifest = func(m *ocispec.Manifest) { m.Layers = append(m.Layers, layer.Descriptor) }
	w.published(d, w.publish(d))
}

func (w *realm) published(d draft, manifest ocispec.Descriptor) {
	if w.newest.Signer != nil {
		old := w.latest
		w.before = &old
	}
	w.newest, w.latest = d, manifest
	w.tally.releases++
	w.learn(d, manifest.Digest)
	w.note("release %d of epoch %d is %s", w.sequence, w.epoch, manifest.Digest)
}

// refused moves the tag to a release that is signed with an untrusted key, whose content must never be seen on the cluster,
// or to an old one.
func (w *realm) refused() {
	w.tally.refused++
	if w.random.IntN(2) == 0 && w.before != nil {
		require.NoError(w.t, w.repo.Tag(context.Background(), *w.before, bundle.LatestTag))
		return
	}
	files := maps.Clone(w.files)
	for _, path := range sortedKeys(files) {
		files[path] = "evil" + w.content()
	}
	w.sequence++
	d := agenttest.New(w.stream, w.sequence, time.Now(), files, agenttest.NewKey())
	d.Release.Epoch = w.epoch
	w.publish(draft{d, w.repo})
}

// tamper changes the cluster behind the agent's back.
func (w *realm) tamper() {
	entries, err := os.ReadDir(w.cluster)
	require.NoError(w.t, err)
	if len(entries) == 0 {
		w.release(false)
		return
	}
	name := entries[w.random.IntN(len(entries))].Name()
	w.tampered[name] = true
	require.NoError(w.t, os.RemoveAll(filepath.Join(w.cluster, name, "1"))) // which may not be there yet
}

// spoilUnsynced is what a power cut does to files that nobody has synced: some are short, some are zeros.
func (w *realm) spoilUnsynced() {
	_ = filepath.WalkDir(filepath.Join(w.dir, content.TreesDir), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && w.random.IntN(4) == 0 {
			if w.random.IntN(2) == 0 {
				err = os.Truncate(path, 0)
			} else {
				info, _ := d.Info()
				err = os.WriteFile(path, make([]byte, info.Size()), 0o600)
			}
		}
		return err
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func equalFiles(a, b map[string]string) bool { return maps.Equal(a, b) }
