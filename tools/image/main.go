// Command image writes the agent's image as an OCI layout, without a container engine: the program, the
// authorities that Mozilla trusts, the time zones of a zip file such as Go's own, and a folder for the state, for one
// or more platforms.
//
//	go run -C tools ./image -o dist/image -tag dev linux/amd64=bin/wherry-agent
//	go run -C tools ./image -o dist/image -tag dev -push registry.plant-7:5000/edge/wherry-agent:dev linux/amd64=…
//
// The same input gives the same bytes: the image's time is that of -created, its files have none.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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
	dir := flags.String("o", "", "write the OCI layout to this `folder`, which is replaced")
	tag := flags.String("tag", "dev", "the image's tag in the layout")
	created := flags.String("created", "1970-01-01T00:00:00Z", "the image's `time`, as RFC 3339")
	revision := flags.String("revision", "", "the `commit` that the program was built from")
	zoneinfo := flags.String("zoneinfo", "", "take time zones from this zip `file`; without it there is UTC alone")
	push := flags.String("push", "", "push the image to this `reference` as well")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, *created)
	if err != nil {
		return fmt.Errorf("-created: %w", err)
	}
	if *dir == "" || flags.NArg() == 0 {
		return errors.New("usage: image -o FOLDER [flags] PLATFORM=PROGRAM…")
	}
	meta := metadata{created: at.UTC(), revision: *revision, version: *tag}
	if *zoneinfo != "" {
		if meta.zones, err = os.ReadFile(*zoneinfo); err != nil {
			return err
		}
	}
	var images []platformImage
	for _, arg := range flags.Args() {
		img, err := imageOf(arg, meta)
		if err != nil {
			return err
		}
		images = append(images, img)
	}
	index := indexOf(images, meta)
	if err := writeLayout(*dir, *tag, index); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if *push != "" {
		if err := pushIndex(ctx, *push, index); err != nil {
			return err
		}
	}
	fmt.Println(digest)
	return nil
}

// imageOf reads PLATFORM=PROGRAM, such as linux/arm64=dist/wherry-agent.
func imageOf(arg string, meta metadata) (platformImage, error) {
	platform, program, ok := strings.Cut(arg, "=")
	if !ok {
		return platformImage{}, fmt.Errorf("%q: write PLATFORM=PROGRAM, such as linux/arm64=bin/wherry-agent", arg)
	}
	p, err := v1.ParsePlatform(platform)
	if err != nil || p.OS == "" || p.Architecture == "" {
		return platformImage{}, fmt.Errorf("%q is no platform such as linux/arm64", platform)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return platformImage{}, err
	}
	img, err := newImage(*p, data, meta)
	return platformImage{*p, img}, err
}

// writeLayout replaces dir when the new layout is whole.
func writeLayout(dir, tag string, index v1.ImageIndex) (err error) {
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
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})
	if err := path.AppendIndex(index, named); err != nil {
		return err
	}
	return errors.Join(os.Chmod(temp, 0o755), os.RemoveAll(dir), os.Rename(temp, dir))
}

// pushIndex has the credentials that docker keeps, and speaks plain HTTP with loopback addresses.
func pushIndex(ctx context.Context, to string, index v1.ImageIndex) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return fmt.Errorf("-push: %w", err)
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push to %s: %w", to, err)
	}
	return nil
}
