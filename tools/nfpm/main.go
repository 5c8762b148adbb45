// Command nfpm makes the packages of hosts, .deb and .rpm, from the descriptions in deploy/packages:
//
//	go run -C tools/nfpm . -o dist/packages -version v1.2.3 amd64=dist/programs/linux/amd64 arm64=dist/programs/linux/arm64
//
// Manual pages and completions of shells come from the programs in bin, which this machine can run. Paths are relative to the top of the
// repository. The same input gives the same bytes: all files have the time of -created.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

func main() {
	if err := errors.Join(os.Chdir("../.."), run(os.Args[1:])); err != nil {
		fmt.Fprintln(os.Stderr, "nfpm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("nfpm", flag.ContinueOnError)
	dir := flags.String("o", "dist/packages", "write the packages to this `folder`")
	version := flags.String("version", "v0.0.0-dev", "the packages' `version`")
	created := flags.String("created", "1970-01-01T00:00:00Z", "the `time` of all files, as RFC 3339")
	formats := flags.String("formats", "deb,rpm", "make packages of these `formats`")
	runnable := flags.String("programs", "bin", "the `folder` with programs that this machine can run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, *created)
	if err != nil {
		return fmt.Errorf("-created: %w", err)
	}
	if flags.NArg() == 0 {
		return errors.New("usage: nfpm [flags] ARCHITECTURE=FOLDER…")
	}
	pages, err := os.MkdirTemp("", "wherry-pages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(pages)
	for _, program := range []string{"wherry", "wherry-agent"} {
		if err := describe(filepath.Join(*runnable, program), pages); err != nil {
			return fmt.Errorf("manual and completions of %s: %w", program, err)
		}
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	descriptions, err := filepath.Glob("deploy/packages/*.yaml")
	if err != nil {
		return err
	}
	for _, arg := range flags.Args() {
		arch, programs, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q: write ARCHITECTURE=FOLDER, such as amd64=bin", arg)
		}
		values := map[string]string{"ARCH": arch, "VERSION": *version, "PROGRAMS": programs, "PAGES": pages}
		for _, description := range descriptions {
			for _, format := range strings.Split(*formats, ",") {
				if err := pack(description, format, *dir, at.UTC(), values); err != nil {
					return fmt.Errorf("%s as %s: %w", description, format, err)
				}
			}
		}
	}
	return nil
}

// pack writes a package and prints its path.
func pack(description, format, dir string, at time.Time, values map[string]string) (err error) {
	config, err := nfpm.ParseFileWithEnvMapping(description, func(name string) string { return values[name] })
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	info.MTime, info.RPM.BuildHost = at, "localhost" // no clock and no name of this machine
	for _, c := range info.Contents {
		if c.FileInfo != nil {
			c.FileInfo.MTime = at
		}
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, packager.ConventionalFileName(info))
	f, err := os.CreateTemp(dir, ".nfpm-")
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, ignoreGone(os.Remove(f.Name()))) }()
	if err := errors.Join(packager.Package(info, f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	fmt.Println(file)
	return nil
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
