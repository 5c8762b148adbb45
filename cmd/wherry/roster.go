package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/regularfile"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/scheduler"
)

func newRosterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "roster",
		Short: "List the clusters of an environment in its folder, where there is no hub",
	}
	cmd.AddCommand(newRosterAddCommand())
	return cmd
}

func newRosterAddCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "add REQUEST [NAME]",
		Short: "Add the cluster of an agent's request to the environment's folder",
		Long: `Add the cluster of an agent's request to the environment's folder, as a Cluster object. REQUEST is a file of
"wherry-agent enroll --request", or - for stdin; it proves that the agent has the key. The clusters that are
listed anywhere in the folder of --file are looked at first: one that is there already changes nothing, and a
request of "enroll --rotate" replaces its key where it stands. Commit what is written, as any other change.`,
		Example: `  wherry roster add plant-7.request --file platform/clusters.yaml
  ssh plant-7 wherry-agent enroll --request - | wherry roster add - plant-7`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			envelope, err := readInput(cmd, args[0])
			if err != nil {
				return err
			}
			r, _, err := bundle.OpenEnrollmentRequest(envelope)
			if errors.Is(err, bundle.ErrUntrusted) {
				return cli.Fail(cli.Denied, fmt.Errorf("%s: %w", args[0], err), "have the agent write it again")
			}
			if err != nil {
				return cli.Fail(cli.Usage, fmt.Errorf("%s: %w", args[0], err), `it must be a file of "wherry-agent enroll --request"`)
			}
			if err := sayRequest(cmd, args[0], r); err != nil {
				return err
			}
			if len(args) == 2 {
				r.Cluster.Name = args[1]
			}
			done, err := addToRoster(cmd.Context(), file, r)
			if err != nil {
				return err
			}
			cmd.PrintErrf("%s\n", done)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "clusters.yaml", "the `FILE` in the environment's folder that the object is added to")
	return cmd
}

// rosterCluster is a Cluster object as it is written.
type rosterCluster struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		ClusterType string            `yaml:"clusterType"`
		UID         string            `yaml:"uid"`
		Ring        string            `yaml:"ring,omitempty"`
		Labels      map[string]string `yaml:"labels,omitempty"`
		PublicKey   string            `yaml:"publicKey"`
		Reporting   string            `yaml:"reporting"`
	} `yaml:"spec"`
}

// addToRoster writes the cluster of a request into a file, and says what it has done.
func addToRoster(ctx context.Context, file string, r bundle.EnrollmentRequest) (string, error) {
	if problems := validation.IsDNS1123Subdomain(r.Cluster.Name); len(problems) > 0 {
		return "", cli.Fail(cli.Usage, fmt.Errorf("no object can be called %q: %s", r.Cluster.Name, problems[0]), "give another name as the second argument")
	}
	known, err := readRoster(ctx, filepath.Dir(file))
	if err != nil {
		return "", err
	}
	for _, c := range known {
		switch {
		case c.UID == r.Cluster.UID && r.Former != "" && c.PublicKey == r.Former:
			return replaceKey(filepath.Join(filepath.Dir(file), c.File), c, r)
		case c.UID == r.Cluster.UID && c.PublicKey == r.Key:
			return fmt.Sprintf("%s: cluster %s is there already", filepath.Join(filepath.Dir(file), c.File), c.Name), nil
		case c.UID == r.Cluster.UID || c.PublicKey == r.Key || c.Name == r.Cluster.Name:
			return "", cli.Fail(cli.No, fmt.Errorf("%s: cluster %s has the same name, uid or key, and differs otherwise", c.Position, c.Name),
				"change it there, or take it away first; after a copy of a disk, see wherry-agent enroll --new-identity")
		}
	}
	if r.Former != "" {
		return "", cli.Fail(cli.No, fmt.Errorf("no Cluster has uid %s and the key that is to be replaced", r.Cluster.UID), "add it with a request of enroll without --rotate")
	}
	object, err := rosterObject(r)
	if err != nil {
		return "", err
	}
	before, err := regularfile.Read(file, maxRosterBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", cli.Fail(cli.Failed, err, "")
	}
	if len(before) > 0 {
		before = append(bytes.TrimRight(before, "\n"), "\n---\n"...)
	}
	return fmt.Sprintf("%s: cluster %s (uid %s) added", file, r.Cluster.Name, r.Cluster.UID), writeRoster(file, append(before, object...))
}

func rosterObject(r bundle.EnrollmentRequest) ([]byte, error) {
	o := rosterCluster{APIVersion: "wherry.dev/v1alpha1", Kind: "Cluster"}
	o.Metadata.Name = r.Cluster.Name
	o.Spec.ClusterType, o.Spec.UID, o.Spec.Ring, o.Spec.Labels = r.Cluster.Type, r.Cluster.UID, r.Cluster.Ring, r.Cluster.Labels
	o.Spec.PublicKey, o.Spec.Reporting = r.Key, "expected"
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	err := enc.Encode(o)
	return out.Bytes(), errors.Join(err, enc.Close())
}

// maxRosterBytes bounds a file of Cluster objects, as the scheduler does.
const maxRosterBytes = 8 << 20

// readRoster returns the Cluster objects of a folder, wherever in it they lie.
func readRoster(ctx context.Context, dir string) ([]scheduler.Cluster, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, cli.Fail(cli.Usage, err, "give the folder of one environment, which has to be there")
	}
	m := scheduler.NewModel("")
	if err := m.Load(ctx, scheduler.Source{FS: os.DirFS(dir)}); err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("%s: %w", dir, err), "give the folder of one environment; \"wherry lint\" says what is wrong with it")
	}
	return m.Clusters(), nil
}

// replaceKey changes the one line of a key that differs, and nothing else of the file.
func replaceKey(file string, c scheduler.Cluster, r bundle.EnrollmentRequest) (string, error) {
	data, err := regularfile.Read(file, maxRosterBytes)
	if err != nil {
		return "", cli.Fail(cli.Failed, err, "")
	}
	before, after := keyLine(r.Former), keyLine(r.Key)
	if before == nil || after == nil || bytes.Count(data, before) != 1 {
		return "", cli.Fail(cli.No, fmt.Errorf("%s: the key of cluster %s is not written as one line of base64", c.Position, c.Name), "put the new key there by hand")
	}
	return fmt.Sprintf("%s: cluster %s has a new key", file, c.Name), writeRoster(file, bytes.Replace(data, before, after, 1))
}

// keyLine is the body of an Ed25519 key in PEM, which is one line; nil of other keys.
func keyLine(text string) []byte {
	block, _ := pem.Decode([]byte(text))
	lines := bytes.Split(bytes.TrimSpace([]byte(text)), []byte("\n"))
	if block == nil || len(lines) != 3 {
		return nil
	}
	return lines[1]
}

func writeRoster(file string, data []byte) error {
	err := cli.WriteFile(file, func(w io.Writer) error { _, err := w.Write(data); return err })
	if err != nil {
		return cli.Fail(cli.Failed, err, "")
	}
	return nil
}
