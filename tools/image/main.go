// Command image writes an image as an OCI layout, without a container engine, for one or more platforms: the agent's from
// scratch, with the authorities that Mozilla trusts and the time zones of a zip file such as Go's own; or that of wherry, with git and ssh,
// which are unpacked from Debian's packages.
//
//	go run -C tools ./image -o dist/image/wherry-agent linux/amd64=bin/wherry-agent
//	go run -C tools ./image -name wherry -o dist/image/wherry -push registry.plant-7:5000/edge/wherry:dev linux/amd64=bin/wherry
//
// The same input gives the same image: its time is that of -created, its files have none. An SBOM of each platform's image and
// the provenance of all are in the layout as well, as referrers, and with -key cosign's signatures of all of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	which := flags.String("name", "wherry-agent", "write this `image`: wherry-agent or wherry")
	dir := flags.String("o", "", "write the OCI layout to this `folder`, which is replaced")
	tag := flags.String("tag", "dev", "the image's tag in the layout")
	created := flags.String("created", "1970-01-01T00:00:00Z", "the image's `time`, as RFC 3339")
	revision := flags.String("revision", "", "the `commit` that the program was built from")
	zoneinfo := flags.String("zoneinfo", "", "take time zones from this zip `file`; without it there is UTC alone")
	cache := flags.String("cache", "", "keep packages of Debian's in this `folder` (default wherry-image in the user's cache folder)")
	refresh := flags.Bool("refresh", false, "ask for the newest packages, and not for those of the last time")
	sboms := flags.String("sboms", "", "write the SBOMs to this `folder` as well")
	key := flags.String("key", "", "have cosign sign with this `key`, a file or a URI; the password is in COSIGN_PASSWORD")
	cosign := flags.String("cosign", "cosign", "the `program` cosign, 2.4 or a later 2.x")
	push := flags.String("push", "", "push the image to this `reference` as well")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, *created)
	if err != nil {
		return fmt.Errorf("-created: %w", err)
	}
	if _, known := definitions[*which]; !known {
		return fmt.Errorf("-name %q: expected %s", *which, strings.Join(slices.Sorted(maps.Keys(definitions)), " or "))
	}
	if *dir == "" || flags.NArg() == 0 {
		return errors.New("usage: image -o FOLDER [flags] PLATFORM=PROGRAM…")
	}
	var ref name.Reference
	if *push != "" {
		if ref, err = name.ParseReference(*push); err != nil { // plain HTTP with loopback addresses
			return fmt.Errorf("-push: %w", err)
		}
	}
	meta := metadata{name: *which, created: at.UTC(), revision: *revision, version: *tag}
	if *zoneinfo != "" {
		if meta.zones, err = os.ReadFile(*zoneinfo); err != nil {
			return err
		}
	}
	debs := downloader{*cache, *refresh}
	if debs.cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("-cache: %w", err)
		}
		debs.cache = filepath.Join(user, "wherry-image")
	}
	var images []*platformImage
	for _, arg := range flags.Args() {
		img, err := imageOf(ctx, arg, meta, debs)
		if err != nil {
			return err
		}
		images = append(images, img)
	}
	p, err := newProduct(images, meta)
	if err != nil {
		return err
	}
	defer func() { p.stop() }()
	if *key != "" {
		if err := p.sign(ctx, *cosign, *key, *which); err != nil {
			return err
		}
	}
	if err := p.writeLayout(*dir, *tag); err != nil {
		return err
	}
	if *sboms != "" {
		if err := p.writeSBOMs(*sboms, meta); err != nil {
			return err
		}
	}
	digest, err := p.index.Digest()
	if err != nil {
		return err
	}
	if *push != "" {
		if err := p.push(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("push to %s: %w", *push, err)
		}
	}
	fmt.Println(digest)
	return nil
}

// imageOf reads PLATFORM=PROGRAM, such as linux/arm64=dist/wherry-agent.
func imageOf(ctx context.Context, arg string, meta metadata, debs downloader) (*platformImage, error) {
	platform, program, ok := strings.Cut(arg, "=")
	if !ok {
		return nil, fmt.Errorf("%q: write PLATFORM=PROGRAM, such as linux/arm64=bin/wherry-agent", arg)
	}
	p, err := v1.ParsePlatform(platform)
	if err != nil || p.OS == "" || p.Architecture == "" {
		return nil, fmt.Errorf("%q is no platform such as linux/arm64", platform)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	if machine := elfMachine[p.Architecture]; machine != 0 {
		if needs, err := needed(data, machine); err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		} else if len(needs) > 0 {
			return nil, fmt.Errorf("%s needs %s: build it with CGO_ENABLED=0", program, strings.Join(needs, ", "))
		}
	}
	return newImage(ctx, *p, data, meta, debs)
}

// writeLayout replaces dir when the new layout is whole.
func (p *product) writeLayout(dir, tag string) (err error) {
	if _, err := os.Stat(dir); err == nil { // nothing but a layout is ever deleted
		if _, err := layout.FromPath(dir); err != nil {
			return fmt.Errorf("%s is there and is no OCI layout: %w", dir, err)
		}
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(parent, ".image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	path, err := layout.Write(temp, emptyIndex())
	if err != nil {
		return err
	}
	named := func(name string) layout.Option { return layout.WithAnnotations(map[string]string{refName: name}) }
	if err := path.AppendIndex(p.index, named(tag)); err != nil {
		return err
	}
	for _, r := range p.referrers {
		if err := r.write(path); err != nil {
			return err
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(p.signatures)) {
		if err := path.AppendImage(p.signatures[tag], named(tag)); err != nil {
			return err
		}
	}
	return errors.Join(os.Chmod(temp, 0o755), os.RemoveAll(dir), os.Rename(temp, dir))
}

// writeSBOMs writes the SBOM of each platform's image to a file of dir.
func (p *product) writeSBOMs(dir string, meta metadata) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, i := range p.images {
		document, err := i.sbom(meta)
		if err != nil {
			return err
		}
		file := fmt.Sprintf("%s-%s-%s.spdx.json", meta.name, i.platform.OS, i.platform.Architecture)
		if err := os.WriteFile(filepath.Join(dir, file), document, 0o644); err != nil {
			return err
		}
	}
	return nil
}
