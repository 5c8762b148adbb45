package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Setting is one setting of an agent. It has three names: a field of the file, a flag, and the variable
// WHERRY_<FLAG>.
type Setting struct {
	Field, Flag string
	// Allowed names the values that are taken, for messages: "expected: …".
	Allowed string
	// Usage is the flag's. A word in backquotes names its value.
	Usage string
	// Values are all allowed values, where there are only a few.
	Values []string
	// List is true for a setting that may be given several times, or separated by commas in the variable.
	List bool
	// Toggle is true for a flag that may be given without a value, and On is its value where it is not given.
	Toggle, On bool

	// separator is that of the variable, if it is not a comma. parts are the fields that an item may have in the
	// file, in the order in which its text has their values; the last one may be missing.
	separator string
	parts     []string
	path      bool // it is relative to the file in which it stands
	pair      bool // the path stands after KEY=
	set       func(*Config, string) error
}

// errUnknown is the error of a value that is not one of the setting's Values.
var errUnknown = errors.New("unknown value")

// refusal completes the error of a value that the setting does not take.
func (s Setting) refusal(value string, err error) error {
	if errors.Is(err, errUnknown) {
		return fmt.Errorf("unknown %s %q (known: %s)", strings.ReplaceAll(s.Flag, "-", " "), value, strings.Join(s.Values, ", "))
	}
	return fmt.Errorf("%w (expected: %s)", err, s.Allowed)
}

// Variable returns the name of the environment variable.
func (s Setting) Variable() string {
	return "WHERRY_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// isNamespace reports whether s is a DNS label of RFC 1123, as Kubernetes has it.
func isNamespace(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

// adapters are those that can be had.
var adapters = []string{"ansible", "argo", "directory", "flux", "kubernetes", "zarf"}

// ackModes are the values of ackMode.
var ackModes = []string{"signed", "stored"}

var logFormats = []string{"text", "json"}

// anyOf lists names as people do: a, b or c.
func anyOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Settings lists all settings, in the order of the help.
func Settings() []Setting {
	const lowerName = "a name of lower-case letters, digits, '.', '_' and '-'"
	return []Setting{
		{Field: "registry", Flag: "registry", List: true, Allowed: "oci://HOST/PREFIX or oci-layout:DIR", Usage: "fetch bundles from `LOCATION`, oci://HOST/PREFIX or oci-layout:DIR; up to eight, asked in order; without it the agent only imports", set: setRegistry},
		{Field: "plainHTTP", Flag: "plain-http", Toggle: true, Allowed: "true or false", Usage: "speak HTTP without TLS with every --registry; loopback never needs TLS", set: setPlain},
		{Field: "plainHTTPHosts", Flag: "plain-http-host", List: true, Allowed: "HOST or HOST:PORT, such as first-box:5001", Usage: "speak HTTP without TLS with the registry at this `HOST` or HOST:PORT alone; may be given several times", set: setPlainHost},
		{Field: "credentials", Flag: "credentials", path: true, Allowed: "the path of a file as docker's config.json", Usage: "credentials of registries, a `FILE` like docker's config.json or a pull secret's .dockerconfigjson or .dockercfg, with hosts such as *.example.com (default: docker's own)", set: text(func(c *Config) *string { return &c.Registry.Credentials })},
		{Field: "authHosts", Flag: "auth-host", List: true, Allowed: "HOST or HOST:PORT, such as auth.example.com", Usage: "send credentials also to this token service of a registry, `HOST` or HOST:PORT; may be given several times", set: setAuthHost},
		{Field: "proxy", Flag: "proxy", Allowed: "a URL such as http://proxy.example:3128", Usage: "reach registries and hub through this proxy, a `URL` with http, https or socks5 (default: HTTPS_PROXY, HTTP_PROXY and NO_PROXY)", set: text(func(c *Config) *string { return &c.Registry.Network.Proxy })},
		{Field: "tls.ca", Flag: "tls-ca", path: true, Allowed: "the path of certificates in PEM", Usage: "trust these authorities besides the system's for registries and hub, a `FILE` in PEM", set: text(func(c *Config) *string { return &c.Registry.Network.CAFile })},
		{Field: "tls.hostCA", Flag: "tls-host-ca", List: true, path: true, pair: true, Allowed: "HOST=FILE or HOST:PORT=FILE, the path of certificates in PEM", Usage: "`HOST=FILE` or HOST:PORT=FILE with more authorities for this host; in the configuration file a mapping; may be given several times", set: setHostCA},
		{Field: "tls.cert", Flag: "tls-cert", path: true, Allowed: "the path of a certificate in PEM", Usage: "client certificate with its chain, a `FILE` in PEM, read for each new connection", set: text(func(c *Config) *string { return &c.Registry.Network.CertFile })},
		{Field: "tls.key", Flag: "tls-key", path: true, Allowed: "the path of a private key in PEM", Usage: "the client certificate's key, a `FILE` in PEM", set: text(func(c *Config) *string { return &c.Registry.Network.KeyFile })},
		{Field: "tls.postQuantum", Flag: "tls-post-quantum", Toggle: true, On: true, Allowed: "true or false", Usage: "use keys that a quantum computer cannot break, for 1 KiB each way with each new connection", set: setPostQuantum},
		{Field: "maxBandwidth", Flag: "max-bandwidth", Allowed: "bytes a second of at least 1KiB, such as 64KiB or 1MiB", Usage: "receive at most this `SIZE` a second from registries and hub, such as 64KiB", set: setBandwidth},
		{Field: "transferWindow", Flag: "transfer-window", Allowed: "HH:MM-HH:MM, such as 01:00-05:00", Usage: "fetch layers and artifacts only between these times of the day in UTC, such as `01:00-05:00`", set: setWindow},
		{Field: "platform", Flag: "platform", Allowed: "the platform's name", Usage: "the platform's `NAME`, as in the release (default \"default\")", set: text(func(c *Config) *string { return &c.Cluster.Platform })},
		{Field: "environment", Flag: "environment", Allowed: lowerName, Usage: "the environment's `NAME`, such as dev (required)", set: name(func(c *Config) *string { return &c.Cluster.Environment })},
		{Field: "clusterType", Flag: "cluster-type", Allowed: lowerName, Usage: "the cluster type's `NAME`, such as drone (required)", set: name(func(c *Config) *string { return &c.Cluster.Type })},
		{Field: "ring", Flag: "ring", Allowed: "letters, digits, '.', '_' and '-'", Usage: "the ring's `NAME`; without one the agent follows the tag latest", set: setRing},
		{Field: "keys", Flag: "key", List: true, path: true, Allowed: "the path of a public key in PEM, such as cosign.pub", Usage: "public key `FILE` of releases, such as cosign.pub; one of several has to sign; required without --trust; may be given several times", set: setKey},
		{Field: "trust", Flag: "trust", path: true, Allowed: "the path of version 1 of the platform's trust document", Usage: "version 1 of the platform's trust document, a `FILE`, in place of --key; later versions come from the registry or by trust install", set: text(func(c *Config) *string { return &c.Trust.Document })},
		{Field: "stateDir", Flag: "state-dir", path: true, Allowed: "the path of a folder", Usage: "`FOLDER` of the agent's state (default \"" + defaultStateDir + "\")", set: text(func(c *Config) *string { return &c.StateDir })},
		{Field: "interval", Flag: "interval", Allowed: "a duration of at least 1s, such as 30s, 5m or 1h", Usage: "`TIME` between two polls of the registry, spread by a tenth (default 5m)", set: durationFrom(time.Second, func(c *Config) *time.Duration { return &c.Passes.Interval })},
		{Field: "adapter", Flag: "adapter", Values: adapters, Allowed: anyOf(adapters), Usage: "use this `ADAPTER` for every assignment, " + anyOf(adapters), set: oneOf(func(c *Config) *string { return &c.Adapters.Only }, adapters...)},
		{Field: "ansiblePlaybook", Flag: "ansible-playbook", Allowed: "the name or path of ansible-playbook", Usage: "run playbooks on this host with this `PROGRAM`, for the adapter ansible, which is off without it", set: text(func(c *Config) *string { return &c.Adapters.AnsiblePlaybook })},
		{Field: "directoryRoot", Flag: "directory-root", path: true, Allowed: "the path of a folder", Usage: "`FOLDER` in which the adapter directory keeps the assignments' folders", set: text(func(c *Config) *string { return &c.Adapters.DirectoryRoot })},
		{Field: "kubeconfig", Flag: "kubeconfig", path: true, Allowed: "the path of a kubeconfig", Usage: "kubeconfig `FILE` for the adapters kubernetes, flux, argo and zarf; not needed inside a cluster; ~/.kube/config is never read", set: text(func(c *Config) *string { return &c.Adapters.Kubeconfig })},
		{Field: "impersonate", Flag: "impersonate", Toggle: true, Allowed: "true or false", Usage: "apply each workspace as ServiceAccount wherry-WORKSPACE, also if the platform names none", set: setImpersonate},
		{Field: "argoNamespace", Flag: "argo-namespace", Allowed: "the name of a namespace", Usage: "Argo CD's own `NAMESPACE` (default \"argocd\")", set: matching(isNamespace, func(c *Config) *string { return &c.Adapters.ArgoNamespace })},
		{Field: "memory", Flag: "memory", Allowed: "NAMESPACE/NAME, or none", Usage: "keep the agent's memory in the Secret and Lease `NAMESPACE/NAME` of the cluster, or none (default: wherry-agent-memory in the pod's namespace; with --kubeconfig one of the stream's in wherry-system)", set: setMemory},
		{Field: "siteValues", Flag: "site-values", path: true, Allowed: "the path of a YAML file, or configmap:NAMESPACE/NAME", Usage: "the site's own values, a `FILE` in YAML or configmap:NAMESPACE/NAME (default: " + sitevalues.DefaultFile + ", if it exists)", set: setSiteValues},
		{Field: "zarf", Flag: "zarf", Allowed: "a program, such as zarf or /usr/local/bin/zarf", Usage: "run this `PROGRAM` for the adapter zarf, which is off without it; packages run commands on this machine", set: text(func(c *Config) *string { return &c.Adapters.Zarf })},
		{Field: "zarfKeys", Flag: "zarf-key", List: true, path: true, Allowed: "the path of a public key in PEM, such as cosign.pub", Usage: "public key `FILE` of signed Zarf packages in registries; may be given several times", set: setZarfKey},
		{Field: "cluster.name", Flag: "cluster-name", Allowed: "letters, digits, '.', '_' and '-'", Usage: "this cluster's `NAME` in reports (default: the host's name)", set: matching(bundle.IsClusterName, func(c *Config) *string { return &c.Cluster.Name })},
		{Field: "cluster.uid", Flag: "cluster-uid", Allowed: "up to 128 letters, digits, '.', '_', ':' and '-'", Usage: "this cluster's `UID` in reports (default: made on the first start)", set: matching(bundle.IsClusterUID, func(c *Config) *string { return &c.Cluster.UID })},
		{Field: "cluster.labels", Flag: "cluster-labels", List: true, Allowed: "KEY=VALUE", Usage: "label `KEY=VALUE` in reports; in the configuration file a mapping; may be given several times", set: setLabel},
		{Field: "hub", Flag: "hub", Allowed: "an http:// or https:// URL", Usage: "hub `URL` that reports go to (default: as enrolled)", set: setHub},
		{Field: "hubKey", Flag: "hub-key", path: true, Allowed: "the path of the public key that \"wherry hub keys show\" prints", Usage: "pin the hub's public key `FILE`; without one, reports stay in the queue (default: as enrolled)", set: text(func(c *Config) *string { return &c.Reports.HubKey })},
		{Field: "enrollToken", Flag: "enroll-token-file", path: true, Allowed: "the path of a file with a token of \"wherry hub tokens create\"", Usage: "token `FILE` with which a new agent enrolls at --hub", set: text(func(c *Config) *string { return &c.Reports.EnrollToken })},
		{Field: "reportRegistry", Flag: "report-registry", Allowed: "oci://HOST/PREFIX or oci-layout:DIR", Usage: "push reports to this `LOCATION`, oci://HOST/PREFIX or oci-layout:DIR, with the credentials for bundles", set: setReports},
		{Field: "ackMode", Flag: "ack-mode", Values: ackModes, Allowed: anyOf(ackModes), Usage: "delete reports in this `MODE`: signed, once the hub has acknowledged them; or stored, without a hub, once --report-registry has them (default \"signed\")", set: setAckMode},
		{Field: "settle", Flag: "settle", Allowed: "a duration, such as 0s or 30s", Usage: "`TIME` for which an assignment must stay compliant before it counts (default: the adapter's)", set: durationFrom(0, func(c *Config) *time.Duration { c.Passes.Settle = new(time.Duration); return c.Passes.Settle })},
		{Field: "deadline", Flag: "deadline", Allowed: "a duration of at least 1s, such as 5m", Usage: "`TIME` that bounds a call of an engine, and after which an assignment that is progressing has failed (default 5m)", set: durationFrom(time.Second, func(c *Config) *time.Duration { return &c.Passes.Deadline })},
		{Field: "maxManifests", Flag: "max-manifests", Allowed: "a size of at least 1MB, such as 32MiB", Usage: "fail an assignment whose manifests have more than this `SIZE`, with YAML aliases expanded; decoding takes up to ten times as much memory (default 32MiB)", set: setMaxManifests},
		{Field: "maintenance", Flag: "maintenance", List: true, separator: ";", parts: []string{"cron", "for", "timeZone"}, Allowed: "the five fields of crontab, a duration and perhaps a time zone, such as \"0 2 * * SAT 4h Europe/Berlin\"", Usage: "change the cluster only in this `WINDOW`, such as '0 2 * * SAT 4h Europe/Berlin'; may be given several times, in the variable with ; between", set: setMaintenance},
		{Field: "veto.file", Flag: "veto-file", path: true, Allowed: "the path of a file", Usage: "change nothing while this `FILE` exists; its first line is the reason", set: text(func(c *Config) *string { return &c.Passes.Veto.File })},
		{Field: "veto.command", Flag: "veto-command", List: true, Allowed: "a program, and its arguments as further values", Usage: "change nothing unless this `PROGRAM` exits with 0; its first line is the reason; give the flag again for each argument", set: setVetoCommand},
		{Field: "veto.timeout", Flag: "veto-timeout", Allowed: "a duration of at least 1s, such as 10s", Usage: "`TIME` after which --veto-command forbids changes (default 10s)", set: durationFrom(time.Second, func(c *Config) *time.Duration { return &c.Passes.Veto.Timeout })},
		{Field: "carryBudget", Flag: "carry-budget", Allowed: "a size of at least 1MB, such as 500MB or 20GiB", Usage: "keep at most this `SIZE` of carried artifacts in the store, such as 20GiB (default: what leaves the larger of a tenth of the disk and 1 GiB free)", set: setCarryBudget},
		{Field: "carryPlatforms", Flag: "carry-platforms", List: true, Allowed: "OS/ARCHITECTURE, such as linux/arm64", Usage: "`PLATFORM` of the cluster, such as linux/arm64, for carried artifacts and site packages; may be given several times (default: wherry.dev/platforms of the cluster type, else Linux on this machine's architecture)", set: setCarryPlatform},
		{Field: "noReferrers", Flag: "no-referrers", Toggle: true, Allowed: "true or false", Usage: "leave out signatures, attestations and SBOMs of carried and imported artifacts", set: setNoReferrers},
		{Field: "import.streams", Flag: "import-streams", Values: importStreams, Allowed: anyOf(importStreams), Usage: "store the releases of site packages for `WHICH` cluster types: own, or all of the platform (default \"platform\" with --serve, else \"own\")", set: oneOf(func(c *Config) *string { return &c.Import.Streams }, importStreams...)},
		{Field: "import.budget", Flag: "import-budget", Allowed: "a size of at least 1MB, such as 500MB or 20GiB", Usage: "store at most this `SIZE` of a site package for each other cluster type, such as 20GiB (default: what leaves the larger of a tenth of the disk and 1 GiB free)", set: setImportBudget},
		{Field: "listen", Flag: "listen", Allowed: "an address such as :8081 or 127.0.0.1:8081", Usage: "serve /healthz, /readyz and /metrics at this `ADDRESS`, such as :8081 (default: nowhere)", set: setListen},
		{Field: "serve.address", Flag: "serve", Allowed: "an address such as :5001 or 10.0.0.7:5001", Usage: "serve the content store to other agents and engines of the site at this `ADDRESS`, such as :5001 (default: nowhere)", set: setServe},
		{Field: "serve.url", Flag: "serve-url", Allowed: "https://HOST:PORT, or http://HOST:PORT with --serve-plain-http", Usage: "`URL` of --serve for others; set it in a pod (default: its host, or this machine's name, and its port)", set: text(func(c *Config) *string { return &c.Serve.URL })},
		{Field: "serve.cert", Flag: "serve-cert", path: true, Allowed: "the path of a certificate in PEM", Usage: "certificate of --serve with its chain, a `FILE` in PEM, read again when it changes (default: from the agent's own CA)", set: text(func(c *Config) *string { return &c.Serve.Cert })},
		{Field: "serve.key", Flag: "serve-key", path: true, Allowed: "the path of a private key in PEM", Usage: "the key of --serve-cert, a `FILE` in PEM", set: text(func(c *Config) *string { return &c.Serve.Key })},
		{Field: "serve.plainHTTP", Flag: "serve-plain-http", Toggle: true, Allowed: "true or false", Usage: "serve without TLS, on loopback only", set: setServePlain},
		{Field: "serve.acceptReports", Flag: "serve-accept-reports", Toggle: true, Allowed: "true or false", Usage: "take the reports of other agents of the site at --serve, to carry them to the hub", set: setAcceptReports},
		{Field: "logFormat", Flag: "log-format", Values: logFormats, Allowed: anyOf(logFormats), Usage: "write the log as `FORMAT`, text or json (default \"text\")", set: oneOf(func(c *Config) *string { return &c.LogFormat }, logFormats...)},
	}
}

const defaultStateDir = "/var/lib/wherry-agent"

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, s string) error {
		if s == "" {
			return errors.New("must not be empty")
		}
		*field(c) = s
		return nil
	}
}

func matching(has func(string) bool, field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, s string) error {
		if !has(s) {
			return fmt.Errorf("%q does not have that form", s)
		}
		*field(c) = s
		return nil
	}
}

func name(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, s string) error {
		*field(c) = s
		return oci.CheckName(s)
	}
}

func oneOf(field func(*Config) *string, values ...string) func(*Config, string) error {
	return func(c *Config, s string) error {
		if !slices.Contains(values, s) {
			return errUnknown
		}
		*field(c) = s
		return nil
	}
}

func durationFrom(least time.Duration, field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, s string) error {
		d, err := duration.Parse(s)
		if err != nil {
			return err
		}
		if d < least {
			return fmt.Errorf("%q is too short", s)
		}
		*field(c) = d
		return nil
	}
}

// maxRegistries bounds how many registries are asked one after the other.
const maxRegistries = 8

// errArchive is the error of an archive as a registry: the agent follows a registry, and imports an archive once.
var errArchive = errors.New(`an archive is no registry: "wherry-agent import FILE" takes it in`)

func setRegistry(c *Config, s string) error {
	l, err := oci.Parse(s)
	switch {
	case err != nil:
		return err
	case l.Archive != "":
		return errArchive
	case slices.Contains(c.Registry.Locations, l):
		return fmt.Errorf("%s is given twice", l)
	case len(c.Registry.Locations) == maxRegistries:
		return fmt.Errorf("there are more than %d", maxRegistries)
	}
	c.Registry.Locations = append(c.Registry.Locations, l)
	return nil
}

func setPlainHost(c *Config, s string) error {
	c.Registry.PlainHosts = append(c.Registry.PlainHosts, s)
	return oci.CheckHost(s)
}

func setHostCA(c *Config, s string) error {
	host, file, ok := strings.Cut(s, "=")
	if !ok || file == "" {
		return fmt.Errorf("%q is not a pair", s)
	}
	if c.Registry.Network.HostCAFiles[host] != "" {
		return fmt.Errorf("%s is given twice", host)
	}
	if c.Registry.Network.HostCAFiles == nil {
		c.Registry.Network.HostCAFiles = map[string]string{}
	}
	c.Registry.Network.HostCAFiles[host] = file
	return oci.CheckHost(host)
}

func setReports(c *Config, s string) (err error) {
	c.Reports.Registry, err = oci.Parse(s)
	if err == nil && c.Reports.Registry.Archive != "" {
		err = oci.ErrReadOnly
	}
	return err
}

func setAckMode(c *Config, s string) error {
	if !slices.Contains(ackModes, s) {
		return errUnknown
	}
	c.Reports.AckStored = s == "stored"
	return nil
}

func setPlain(c *Config, s string) (err error) {
	c.Registry.Plain, err = strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither", s)
	}
	return nil
}

func setPostQuantum(c *Config, s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither", s)
	}
	c.Registry.Network.NoPostQuantum = !on
	return nil
}

// sizePattern is a number of bytes with a unit that says whether it counts by 1000 or 1024.
var sizePattern = lazyregexp.New(`^([0-9]{1,9})(B|kB|MB|KiB|MiB)?$`)

var units = map[string]int64{"": 1, "B": 1, "kB": 1000, "MB": 1000 * 1000, "KiB": 1 << 10, "MiB": 1 << 20}

func setBandwidth(c *Config, s string) error {
	m := sizePattern.FindStringSubmatch(strings.TrimSuffix(s, "/s"))
	if m == nil {
		return fmt.Errorf("%q is not a size", s)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if c.Registry.Network.MaxBandwidth = n * units[m[2]]; err == nil && c.Registry.Network.MaxBandwidth < 1<<10 {
		err = fmt.Errorf("%q is too little", s)
	}
	return err
}

func setWindow(c *Config, s string) error {
	var times [2]time.Duration
	opens, closes, ok := strings.Cut(s, "-")
	for i, text := range []string{opens, closes} {
		t, err := time.Parse("15:04", text)
		if err != nil || !ok {
			return fmt.Errorf("%q does not have that form", s)
		}
		times[i] = time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	}
	if times[0] == times[1] {
		return fmt.Errorf("%q opens and closes at the same time", s)
	}
	c.Registry.Window = window.Transfer{Opens: times[0], Closes: times[1]}
	return nil
}

func setMaintenance(c *Config, s string) error {
	w, err := window.ParseMaintenance(s)
	c.Passes.Maintenance = append(c.Passes.Maintenance, w)
	return err
}

func setVetoCommand(c *Config, s string) error {
	if s == "" && len(c.Passes.Veto.Command) == 0 {
		return errors.New("must not be empty")
	}
	c.Passes.Veto.Command = append(c.Passes.Veto.Command, s)
	return nil
}

func setImpersonate(c *Config, s string) (err error) {
	c.Adapters.Impersonate, err = strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither", s)
	}
	return nil
}

func setRing(c *Config, s string) error {
	c.Cluster.Ring = s
	return oci.CheckTag(bundle.MovingTag(s))
}

func setKey(c *Config, s string) error {
	c.Trust.Keys = append(c.Trust.Keys, s)
	return nil
}

func setAuthHost(c *Config, s string) error {
	c.Registry.AuthHosts = append(c.Registry.AuthHosts, s)
	return oci.CheckAuthHost(s)
}

func setZarfKey(c *Config, s string) error {
	c.Adapters.ZarfKeys = append(c.Adapters.ZarfKeys, s)
	return nil
}

func setLabel(c *Config, s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" {
		return fmt.Errorf("%q is not a pair", s)
	}
	if c.Cluster.Labels == nil {
		c.Cluster.Labels = map[string]string{}
	}
	c.Cluster.Labels[k] = v
	return nil
}

func setListen(c *Config, s string) error {
	_, port, err := net.SplitHostPort(s)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		return fmt.Errorf("%q does not have that form", s)
	}
	c.Listen = s
	return nil
}

func setServe(c *Config, s string) error {
	_, port, err := net.SplitHostPort(s)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		return fmt.Errorf("%q does not have that form", s)
	}
	c.Serve.Address = s
	return nil
}

func setServePlain(c *Config, s string) (err error) {
	c.Serve.Plain, err = strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither", s)
	}
	return nil
}

func setNoReferrers(c *Config, s string) (err error) {
	c.Carry.WithoutReferrers, err = strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither", s)
	}
	return nil
}

func setAcceptReports(c *Config, s string) (err error) {
	c.Serve.AcceptReports, err = strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither", s)
	}
	return nil
}

func setHub(c *Config, s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is not such a URL", s)
	}
	c.Reports.Hub = strings.TrimSuffix(s, "/")
	return nil
}
