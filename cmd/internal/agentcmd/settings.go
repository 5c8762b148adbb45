package agentcmd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// setting is one thing that can be told, under three names: a field of the file, a flag, and the
// variable WHERRY_<FLAG>.
type setting struct {
	field, flag string
	// allowed completes the sentence "allowed is …".
	allowed string
	usage   string
	// values are all that are allowed, where these are few.
	values []string
	// list settings may be given several times, or separated by commas in the variable.
	list bool
	// separator is that of the variable, where it is not a comma. parts are the fields that an item may have in
	// the file, in the order in which its text has their values; the last one may be missing.
	separator string
	parts     []string
	// toggle settings may be given as a flag without a value.
	toggle bool
	// on toggles are true where nothing is told.
	on bool
	// path settings are relative to the file when they stand in it.
	path bool
	set  func(*config, string) error
}

func (s setting) variable() string {
	return "WHERRY_" + strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))
}

var (
	uidPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	// namespacePattern is a DNS label of RFC 1123, as Kubernetes has it.
	namespacePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	namePattern      = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
)

// adapters are those that can be had.
var adapters = []string{"ansible", "argo", "directory", "flux", "kubernetes", "zarf"}

// ackModes are what may delete a report.
var ackModes = []string{"signed", "stored"}

var logFormats = []string{"text", "json"}

// anyOf lists names as people do: a, b or c.
func anyOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// settings lists all there is to tell, in the order of the help.
func settings() []setting {
	const lowerName = "a name of lower-case letters, digits, '.', '_' and '-'"
	return []setting{
		{field: "registry", flag: "registry", allowed: "oci://HOST/PREFIX or oci-layout:DIR", usage: "where bundles come from, `LOCATION` as oci://HOST/PREFIX or oci-layout:DIR; without it they come by import only", set: setRegistry},
		{field: "plainHTTP", flag: "plain-http", toggle: true, allowed: "true or false", usage: "speak HTTP without TLS; with loopback addresses this is so anyway", set: setPlain},
		{field: "credentials", flag: "credentials", path: true, allowed: "the path of a file as docker's config.json", usage: "credentials of registries, a `FILE` as docker's config.json or a pull secret's .dockerconfigjson (default: docker's own)", set: text(func(c *config) *string { return &c.credentials })},
		{field: "authHosts", flag: "auth-host", list: true, allowed: "HOST or HOST:PORT, such as auth.example.com", usage: "send credentials of registries also to this `HOST` or HOST:PORT, where a registry names it as its token service; may be given several times", set: setAuthHost},
		{field: "proxy", flag: "proxy", allowed: "a URL such as http://proxy.example:3128", usage: "reach registries and hub through this proxy, a `URL` (default: HTTPS_PROXY, HTTP_PROXY and NO_PROXY)", set: text(func(c *config) *string { return &c.network.Proxy })},
		{field: "tls.ca", flag: "tls-ca", path: true, allowed: "the path of certificates in PEM", usage: "authorities that are trusted beside the system's, a `FILE` in PEM", set: text(func(c *config) *string { return &c.network.CAFile })},
		{field: "tls.cert", flag: "tls-cert", path: true, allowed: "the path of a certificate in PEM", usage: "client certificate with its chain, a `FILE` in PEM", set: text(func(c *config) *string { return &c.network.CertFile })},
		{field: "tls.key", flag: "tls-key", path: true, allowed: "the path of a private key in PEM", usage: "the client certificate's key, a `FILE` in PEM", set: text(func(c *config) *string { return &c.network.KeyFile })},
		{field: "tls.postQuantum", flag: "tls-post-quantum", toggle: true, on: true, allowed: "true or false", usage: "agree on keys in a way that a quantum computer cannot break, for 1 KiB each way with each new connection", set: setPostQuantum},
		{field: "maxBandwidth", flag: "max-bandwidth", allowed: "bytes a second of at least 1KiB, such as 64KiB or 1MiB", usage: "receive at most this `SIZE` a second from registries and hub, such as 64KiB", set: setBandwidth},
		{field: "transferWindow", flag: "transfer-window", allowed: "HH:MM-HH:MM, such as 01:00-05:00", usage: "fetch layers and artifacts only between these times of the day in UTC, such as `01:00-05:00`", set: setWindow},
		{field: "platform", flag: "platform", allowed: "the platform's name", usage: "the platform's `NAME` (default \"default\")", set: text(func(c *config) *string { return &c.cluster.Platform })},
		{field: "environment", flag: "environment", allowed: lowerName, usage: "the environment's `NAME`, such as dev", set: name(func(c *config) *string { return &c.cluster.Environment })},
		{field: "clusterType", flag: "cluster-type", allowed: lowerName, usage: "the cluster type's `NAME`, such as drone", set: name(func(c *config) *string { return &c.cluster.Type })},
		{field: "ring", flag: "ring", allowed: "letters, digits, '.', '_' and '-'", usage: "the ring's `NAME`; without one the agent follows the tag latest", set: setRing},
		{field: "keys", flag: "key", list: true, path: true, allowed: "the path of a public key in PEM, such as cosign.pub", usage: "public key `FILE` that releases are signed with, such as cosign.pub; may be given several times", set: setKey},
		{field: "trust", flag: "trust", path: true, allowed: "the path of version 1 of the platform's trust document", usage: "version 1 of the platform's trust document, a `FILE`, in place of --key; later versions come from the registry or by trust install", set: text(func(c *config) *string { return &c.trust })},
		{field: "stateDir", flag: "state-dir", path: true, allowed: "the path of a folder", usage: "`FOLDER` of the agent's state (default \"" + defaultStateDir + "\")", set: text(func(c *config) *string { return &c.stateDir })},
		{field: "interval", flag: "interval", allowed: "a duration of at least 1s, such as 30s, 5m or 1h", usage: "`TIME` between two looks at the registry (default 5m)", set: durationFrom(time.Second, func(c *config) *time.Duration { return &c.interval })},
		{field: "adapter", flag: "adapter", values: adapters, allowed: anyOf(adapters), usage: "use this `ADAPTER` for every assignment, " + anyOf(adapters), set: oneOf(func(c *config) *string { return &c.adapter }, adapters...)},
		{field: "ansiblePlaybook", flag: "ansible-playbook", allowed: "the name or path of ansible-playbook", usage: "let the adapter ansible run playbooks on this host, with the rights of the agent, by this `PROGRAM`, such as ansible-playbook", set: text(func(c *config) *string { return &c.ansiblePlaybook })},
		{field: "directoryRoot", flag: "directory-root", path: true, allowed: "the path of a folder", usage: "`FOLDER` in which the adapter directory keeps the assignments' folders", set: text(func(c *config) *string { return &c.directoryRoot })},
		{field: "kubeconfig", flag: "kubeconfig", path: true, allowed: "the path of a kubeconfig", usage: "kubeconfig `FILE` for the adapters kubernetes, flux, argo and zarf; inside a cluster it is not needed", set: text(func(c *config) *string { return &c.kubeconfig })},
		{field: "impersonate", flag: "impersonate", toggle: true, allowed: "true or false", usage: "apply what belongs to a workspace in the name of ServiceAccount wherry-WORKSPACE, also where the platform names none", set: setImpersonate},
		{field: "argoNamespace", flag: "argo-namespace", allowed: "the name of a namespace", usage: "Argo CD's own `NAMESPACE` (default \"argocd\")", set: matching(namespacePattern, func(c *config) *string { return &c.argoNamespace })},
		{field: "memory", flag: "memory", allowed: "NAMESPACE/NAME, or none", usage: "keep what must outlive this machine in the Secret and Lease `NAMESPACE/NAME` of the cluster, or none (default: wherry-agent-memory in the pod's namespace; with --kubeconfig one of the stream's in wherry-system)", set: setMemory},
		{field: "zarf", flag: "zarf", allowed: "a program, such as zarf or /usr/local/bin/zarf", usage: "run this `PROGRAM` for the adapter zarf, which is off without; packages may run commands on this machine", set: text(func(c *config) *string { return &c.zarf })},
		{field: "zarfKeys", flag: "zarf-key", list: true, path: true, allowed: "the path of a public key in PEM, such as cosign.pub", usage: "public key `FILE` that Zarf packages of a registry are signed with; may be given several times", set: setZarfKey},
		{field: "cluster.name", flag: "cluster-name", allowed: "letters, digits, '.', '_' and '-'", usage: "this cluster's `NAME` in reports (default: the host's name)", set: matching(namePattern, func(c *config) *string { return &c.cluster.Name })},
		{field: "cluster.uid", flag: "cluster-uid", allowed: "up to 128 letters, digits, '.', '_', ':' and '-'", usage: "this cluster's `UID` in reports (default: made on the first start)", set: matching(uidPattern, func(c *config) *string { return &c.cluster.UID })},
		{field: "cluster.labels", flag: "cluster-labels", list: true, allowed: "KEY=VALUE", usage: "label `KEY=VALUE` in reports; may be given several times", set: setLabel},
		{field: "hub", flag: "hub", allowed: "an http:// or https:// URL", usage: "hub `URL` that reports go to (default: that of the hub that has enrolled the agent)", set: setHub},
		{field: "hubKey", flag: "hub-key", path: true, allowed: "the path of the public key that \"wherry hub keys show\" prints", usage: "pin the hub's public key `FILE` (default: that of the hub that has enrolled the agent); without one no acknowledgement is believed", set: text(func(c *config) *string { return &c.hubKey })},
		{field: "enrollToken", flag: "enroll-token-file", path: true, allowed: "the path of a file with a token of \"wherry hub tokens create\"", usage: "token `FILE` by which an agent that no hub has enrolled registers itself at --hub", set: text(func(c *config) *string { return &c.enrollToken })},
		{field: "reportRegistry", flag: "report-registry", allowed: "oci://HOST/PREFIX or oci-layout:DIR", usage: "registry that reports are pushed to, `LOCATION` as oci://HOST/PREFIX or oci-layout:DIR", set: setReports},
		{field: "ackMode", flag: "ack-mode", values: ackModes, allowed: anyOf(ackModes), usage: "delete reports as `MODE` says: signed, once the hub has acknowledged them, or stored, once --report-registry has them, where there is no hub (default \"signed\")", set: setAckMode},
		{field: "settle", flag: "settle", allowed: "a duration, such as 0s or 30s", usage: "`TIME` that an engine must call an assignment compliant before it counts (default: what the adapter asks for)", set: durationFrom(0, func(c *config) *time.Duration { c.settle = new(time.Duration); return c.settle })},
		{field: "deadline", flag: "deadline", allowed: "a duration of at least 1s, such as 5m", usage: "`TIME` after which an assignment that is progressing has failed (default 5m)", set: durationFrom(time.Second, func(c *config) *time.Duration { return &c.deadline })},
		{field: "maintenance", flag: "maintenance", list: true, separator: ";", parts: []string{"cron", "for", "timeZone"}, allowed: "the five fields of crontab, a duration and perhaps a time zone, such as \"0 2 * * SAT 4h Europe/Berlin\"", usage: "change the cluster only in this `WINDOW`, such as '0 2 * * SAT 4h Europe/Berlin'; may be given several times", set: setMaintenance},
		{field: "veto.file", flag: "veto-file", path: true, allowed: "the path of a file", usage: "change nothing while this `FILE` is there; its first line says why", set: text(func(c *config) *string { return &c.veto.File })},
		{field: "veto.command", flag: "veto-command", list: true, allowed: "a program, and its arguments as further values", usage: "change nothing unless this `PROGRAM` ends with 0; the first line that it writes says why; given again, the flag names its arguments", set: setVetoCommand},
		{field: "veto.timeout", flag: "veto-timeout", allowed: "a duration of at least 1s, such as 10s", usage: "`TIME` after which a program that has not answered forbids changes (default 10s)", set: durationFrom(time.Second, func(c *config) *time.Duration { return &c.veto.Timeout })},
		{field: "listen", flag: "listen", allowed: "an address such as :8081 or 127.0.0.1:8081", usage: "serve /healthz, /readyz and /metrics at this `ADDRESS`, such as :8081 (default: nowhere)", set: setListen},
		{field: "logFormat", flag: "log-format", values: logFormats, allowed: anyOf(logFormats), usage: "write the log as `FORMAT`, text or json (default \"text\")", set: oneOf(func(c *config) *string { return &c.logFormat }, logFormats...)},
	}
}

const defaultStateDir = "/var/lib/wherry-agent"

func text(field func(*config) *string) func(*config, string) error {
	return func(c *config, s string) error {
		if s == "" {
			return errors.New("it is empty")
		}
		*field(c) = s
		return nil
	}
}

func matching(pattern *regexp.Regexp, field func(*config) *string) func(*config, string) error {
	return func(c *config, s string) error {
		if !pattern.MatchString(s) {
			return fmt.Errorf("%q does not have that form", s)
		}
		*field(c) = s
		return nil
	}
}

func name(field func(*config) *string) func(*config, string) error {
	return func(c *config, s string) error {
		*field(c) = s
		return oci.CheckName(s)
	}
}

func oneOf(field func(*config) *string, values ...string) func(*config, string) error {
	return func(c *config, s string) error {
		if !slices.Contains(values, s) {
			return fmt.Errorf("%q is none of them", s)
		}
		*field(c) = s
		return nil
	}
}

func durationFrom(least time.Duration, field func(*config) *time.Duration) func(*config, string) error {
	return func(c *config, s string) error {
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

func setRegistry(c *config, s string) (err error) {
	c.registry, err = oci.Parse(s)
	return err
}

func setReports(c *config, s string) (err error) {
	c.reports, err = oci.Parse(s)
	return err
}

func setAckMode(c *config, s string) error {
	if !slices.Contains(ackModes, s) {
		return fmt.Errorf("%q is none of them", s)
	}
	c.ackStored = s == "stored"
	return nil
}

func setPlain(c *config, s string) (err error) {
	c.plain, err = strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither", s)
	}
	return nil
}

func setPostQuantum(c *config, s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither", s)
	}
	c.network.NoPostQuantum = !on
	return nil
}

// sizePattern is a number of bytes with a unit that says whether it counts by 1000 or 1024.
var sizePattern = regexp.MustCompile(`^([0-9]{1,9})(B|kB|MB|KiB|MiB)?$`)

var units = map[string]int64{"": 1, "B": 1, "kB": 1000, "MB": 1000 * 1000, "KiB": 1 << 10, "MiB": 1 << 20}

func setBandwidth(c *config, s string) error {
	m := sizePattern.FindStringSubmatch(strings.TrimSuffix(s, "/s"))
	if m == nil {
		return fmt.Errorf("%q is no size", s)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if c.network.MaxBandwidth = n * units[m[2]]; err == nil && c.network.MaxBandwidth < 1<<10 {
		err = fmt.Errorf("%q is too little", s)
	}
	return err
}

func setWindow(c *config, s string) error {
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
		return fmt.Errorf("%q is no time at all, or all of it", s)
	}
	c.window = agent.Window{Opens: times[0], Closes: times[1]}
	return nil
}

func setMaintenance(c *config, s string) error {
	w, err := agent.ParseMaintenanceWindow(s)
	c.maintenance = append(c.maintenance, w)
	return err
}

func setVetoCommand(c *config, s string) error {
	if s == "" && len(c.veto.Command) == 0 {
		return errors.New("it is empty")
	}
	c.veto.Command = append(c.veto.Command, s)
	return nil
}

func setImpersonate(c *config, s string) (err error) {
	c.impersonate, err = strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither", s)
	}
	return nil
}

func setRing(c *config, s string) error {
	c.cluster.Ring = s
	return oci.CheckTag(bundle.MovingTag(s))
}

func setKey(c *config, s string) error {
	c.keys = append(c.keys, s)
	return nil
}

func setAuthHost(c *config, s string) error {
	c.authHosts = append(c.authHosts, s)
	return oci.CheckAuthHost(s)
}

func setZarfKey(c *config, s string) error {
	c.zarfKeys = append(c.zarfKeys, s)
	return nil
}

func setLabel(c *config, s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" {
		return fmt.Errorf("%q is no pair", s)
	}
	if c.cluster.Labels == nil {
		c.cluster.Labels = map[string]string{}
	}
	c.cluster.Labels[k] = v
	return nil
}

func setListen(c *config, s string) error {
	_, port, err := net.SplitHostPort(s)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		return fmt.Errorf("%q does not have that form", s)
	}
	c.listen = s
	return nil
}

func setHub(c *config, s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is no such URL", s)
	}
	c.hub = strings.TrimSuffix(s, "/")
	return nil
}
