package hubcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/desired"
)

// watching holds the flags of hub serve for what is published.
type watching struct {
	locations, keys, trust []string
	interval               time.Duration
	registry               flags.Registry
}

func (w *watching) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&w.locations, "watch", nil, "follow the releases that are published at this `LOCATION`, oci://HOST/PREFIX or oci-layout:DIR (repeatable)")
	f.StringArrayVar(&w.keys, "trust-key", nil, "believe releases that the key in this `FILE` has signed, of platforms without a trust document (repeatable)")
	f.StringArrayVar(&w.trust, "trust", nil, "believe releases of a platform as its trust document says: a `FILE` with version 1, or a folder of such files (repeatable)")
	f.DurationVar(&w.interval, "watch-interval", desired.DefaultInterval, "the `TIME` between two looks at what is published, at least 1s; each is one request for each environment")
	w.registry.AddTo(cmd)
	cli.NotEmpty(cmd, "watch", "trust-key", "trust")
	cli.Rare(cmd, "watch-interval")
}

// apply adds the flags to o.
func (w *watching) apply(o *hub.Options) error {
	var err error
	if o.Trust, err = w.readTrust(); err != nil {
		return err
	}
	for _, text := range w.locations {
		l, err := oci.Parse(text)
		if err != nil {
			return cli.Fail(cli.Usage, fmt.Errorf("--watch: %w", err), "")
		}
		if l.Archive != "" {
			return cli.Usagef("--watch %s: nothing is published to an archive; write oci://HOST/PREFIX or oci-layout:DIR", text)
		}
		o.Watch.Locations = append(o.Watch.Locations, l)
	}
	if w.interval < time.Second {
		return cli.Usagef("--watch-interval: %s is less than a second", w.interval)
	}
	o.Watch.OCI, o.Watch.Interval = w.registry.Options(), w.interval
	if len(w.locations) > 0 && !o.Trust.Given() {
		return cli.Fail(cli.Usage, fmt.Errorf("--watch needs --trust or --trust-key: only releases with a trusted signature count"),
			`--trust is version 1 of the trust document, --trust-key the .pub file that "wherry keys generate" made`)
	}
	return nil
}

// maxTrustFiles bounds the files of a folder of --trust.
const maxTrustFiles = 1000

func (w *watching) readTrust() (desired.Trust, error) {
	var t desired.Trust
	for _, name := range w.keys {
		data, err := diskfile.Read(name, flags.MaxKeyBytes)
		var keys bundle.Keys
		if err == nil {
			keys, err = bundle.ParsePublicKeys(data)
		}
		if err != nil {
			return t, cli.Fail(cli.Usage, fmt.Errorf("--trust-key %s: %w", name, err), `--trust-key is the .pub file that "wherry keys generate" made`)
		}
		t.Keys = append(t.Keys, keys...)
	}
	from := map[string]string{}
	for _, name := range w.trust {
		files, err := trustFiles(name)
		if err != nil {
			return t, err
		}
		for _, file := range files {
			chain, err := flags.BeginTrust(file)
			if err != nil {
				return t, err
			}
			platform := chain.Current().Platform
			if before := from[platform]; before != "" {
				return t, cli.Usagef("--trust: %s and %s are both of platform %q", before, file, platform)
			}
			from[platform] = file
			t.Chains = append(t.Chains, chain)
		}
	}
	return t, nil
}

// trustFiles returns the files of a folder, or the file itself.
func trustFiles(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--trust: %w", err), `"wherry trust init" makes such a file`)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--trust: %w", err), "")
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	if len(files) == 0 || len(files) > maxTrustFiles {
		return nil, cli.Usagef("--trust %s: the folder has %d files; give one with version 1 of each platform's trust document", name, len(files))
	}
	return files, nil
}
