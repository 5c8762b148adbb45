package harness

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// startStore runs etcd and returns its URL.
func (c *Cluster) startStore(ctx context.Context, tools string) (string, error) {
	ports, err := freePorts(2)
	if err != nil {
		return "", err
	}
	client, peer := loopback("http", ports[0]), loopback("http", ports[1])
	p, err := c.run(tools, "etcd",
		"--data-dir="+filepath.Join(c.dir, "etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer,
		"--unsafe-no-fsync", // the data ends with the tests
	)
	if err != nil {
		return "", err
	}
	return client, await(ctx, c.place.client(), client+"/health", p)
}

// startAPIServer runs kube-apiserver on the given store and writes the kubeconfig of its administrator.
func (c *Cluster) startAPIServer(ctx context.Context, tools, store string) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	token, tokens := rand.Text(), filepath.Join(c.dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return err
	}
	if err := writeCertificate(c.certificate(), c.key()); err != nil {
		return err
	}
	if err := writeKubeconfig(c.Kubeconfig, loopback("https", ports[0]), c.certificate(), token); err != nil {
		return err
	}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	c.Config.Dial = c.place.Dial
	p, err := c.run(tools, "kube-apiserver",
		"--etcd-servers="+store,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[0]),
		"--tls-cert-file="+c.certificate(), "--tls-private-key-file="+c.key(), "--cert-dir="+c.dir,
		"--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.key(), "--service-account-signing-key-file="+c.key(),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged=true",         // as everywhere: it is for Pod Security to refuse
		"--endpoint-reconciler-type=none", // it refuses to announce an address of loopback
	)
	if err != nil {
		return err
	}
	return awaitReady(ctx, c.Config, p)
}

// startControllers runs the controllers without which a cluster never completes requests such as deletions.
func (c *Cluster) startControllers(ctx context.Context, tools string) error {
	return c.startManager(ctx, tools, "kube-controller-manager", "--controllers="+strings.Join([]string{
		"namespace-controller", "garbage-collector-controller",
		"deployment-controller", "replicaset-controller",
		"clusterrole-aggregation-controller", "resourcequota-controller", // for the rights and the quota of teams
		"serviceaccount-controller", "root-ca-certificate-publisher-controller", // for a pod that speaks to the API server
		"persistentvolume-binder-controller", "persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller",
	}, ","), "--root-ca-file="+c.certificate())
}

// startScheduler runs kube-scheduler, which binds pods to nodes.
func (c *Cluster) startScheduler(ctx context.Context, tools string) error {
	return c.startManager(ctx, tools, "kube-scheduler")
}

// startManager runs a client of the API server that answers on a port of its own.
func (c *Cluster) startManager(ctx context.Context, tools, name string, more ...string) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	p, err := c.run(tools, name, append(more,
		"--kubeconfig="+c.Kubeconfig, "--authentication-kubeconfig="+c.Kubeconfig, "--authorization-kubeconfig="+c.Kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[0]),
		"--tls-cert-file="+c.certificate(), "--tls-private-key-file="+c.key(), "--cert-dir="+c.dir,
		"--leader-elect=false",
	)...)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	client.Timeout = probeTimeout
	return await(ctx, client, loopback("https", ports[0])+"/healthz", p)
}

// run starts a tool as part of the cluster.
func (c *Cluster) run(tools, name string, args ...string) (*process, error) {
	path, err := find(tools, name)
	if err != nil {
		return nil, err
	}
	p, err := c.place.start(c.dir, name, path, args)
	if err != nil {
		return nil, err
	}
	c.processes = append(c.processes, p)
	return p, nil
}

// Tool returns the path of a program that the modules of e2e/tools build.
func Tool(name string) (string, error) { return find(os.Getenv(ToolsEnv), name) }

// find returns the path of a file in one of the folders of tools.
func find(tools, name string) (string, error) {
	for _, dir := range filepath.SplitList(tools) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is in no folder of %s, which is %q; \"make e2e\" builds it", name, ToolsEnv, tools)
}

func loopback(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

func (c *Cluster) certificate() string { return filepath.Join(c.dir, "tls.crt") }
func (c *Cluster) key() string         { return filepath.Join(c.dir, "tls.key") }

// writeCertificate makes the key of the cluster's servers, and of its service account tokens, and a
// certificate for it that serves as its own authority.
func writeCertificate(certificate, key string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "wherry-e2e"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(7 * 24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public}), 0o644),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600),
	)
}

// writeKubeconfig writes access for a token. The certificate is embedded, so that the file can be copied.
func writeKubeconfig(path, server, certificate, token string) error {
	ca, err := os.ReadFile(certificate)
	if err != nil {
		return err
	}
	const name = "wherry-e2e"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, path)
}
