package installcmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/deploy"
)

// maxValuesBytes bounds a file of values. The permissions for a bundle of a large platform have some 100 KiB.
const maxValuesBytes = 4 << 20

// chart holds the flags that choose the values of a chart.
type chart struct {
	name             deploy.Chart
	image, namespace string
	file             string
	set              []string
	values           bool
}

func (c *chart) add(cmd *cobra.Command, defaultImage string) {
	f := cmd.Flags()
	f.StringVar(&c.image, "image", "", "the image, `REFERENCE`"+defaultImage)
	f.StringVar(&c.namespace, "namespace", deploy.DefaultNamespace, "install in this `NAMESPACE`")
	f.StringVarP(&c.file, "file", "f", "", "`FILE` with values of the chart, as for helm install -f; flags override it")
	f.StringArrayVar(&c.set, "set", nil, "set a value of the chart, as `KEY=VALUE`; overrides all others (repeatable)")
	f.Bool("print", false, "print the manifests (default)")
	f.BoolVar(&c.values, "values", false, "print the values of the chart, for helm install -f, instead of the manifests")
	cmd.MarkFlagsMutuallyExclusive("print", "values")
}

// compose returns the values of the file, below those that other flags give, below those of --set. DefaultImage may be empty.
func (c *chart) compose(given map[string]any, defaultImage string) (map[string]any, error) {
	values := map[string]any{}
	if c.file != "" {
		data, err := diskfile.Read(c.file, maxValuesBytes)
		if err == nil {
			err = yaml.Unmarshal(data, &values)
		}
		if err != nil {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("--file %s: %w", c.file, err), "")
		}
	}
	if c.image != "" {
		given["image"] = c.image
	}
	values = loader.MergeMaps(values, given)
	for _, s := range c.set {
		if err := strvals.ParseInto(s, values); err != nil {
			return nil, cli.Usagef("--set %q: %w (expected: KEY=VALUE, as helm takes it)", s, err)
		}
	}
	if values["image"] == nil && defaultImage != "" {
		values["image"] = defaultImage
	}
	if problems := validation.IsDNS1123Label(c.namespace); len(problems) > 0 {
		return nil, cli.Usagef("--namespace %q: %s", c.namespace, problems[0])
	}
	return values, nil
}

// print prints the manifests, or the values, below a comment. Only manifests hold the secrets.
func (c *chart) print(cmd *cobra.Command, values map[string]any, comment string, secrets ...map[string]any) error {
	image, _ := values["image"].(string)
	if image == "" {
		return cli.Fail(cli.Usage, errors.New("--image is not set"), "\"make image IMAGE_PUSH=…\" builds and pushes one")
	}
	if _, err := name.ParseReference(image); err != nil {
		return cli.Usagef("--image: %w", err)
	}
	manifests := loader.MergeMaps(values, map[string]any{"createNamespace": true})
	if objects, _ := values["objects"].([]any); len(secrets) > 0 {
		for _, s := range secrets {
			objects = append(objects, s)
		}
		manifests["objects"] = objects
	}
	data, err := c.name.Render(c.namespace, manifests) // which checks the values
	if err != nil {
		return cli.Fail(cli.Usage, errors.New(strings.TrimSpace(err.Error())), fmt.Sprintf("deploy/charts/%s/values.yaml lists the values", c.name))
	}
	if c.values {
		if data, err = yaml.Marshal(values); err != nil {
			return err
		}
	}
	_, err = cmd.OutOrStdout().Write(append([]byte(comment), data...))
	return err
}
