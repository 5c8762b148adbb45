package zarf

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// kubeconfig returns the path of zarf's kubeconfig. Without a cluster that file does not exist, so that zarf does not use
// another one.
func (r *Reconciler) kubeconfig() string {
	if r.opts.Kubeconfig != "" {
		return r.opts.Kubeconfig
	}
	return filepath.Join(r.opts.Dir, "kubeconfig")
}

// writeKubeconfig writes the agent's own credentials. In a cluster these are a service account's, by reference to the
// files that the kubelet renews.
func (r *Reconciler) writeKubeconfig() error {
	if r.opts.Kubeconfig != "" || r.config == nil {
		return nil
	}
	const name = "wherry"
	c := r.config
	access := clientcmdapi.NewConfig()
	access.Clusters[name] = &clientcmdapi.Cluster{
		Server: c.Host + c.APIPath, TLSServerName: c.ServerName, InsecureSkipTLSVerify: c.Insecure,
		CertificateAuthority: c.CAFile, CertificateAuthorityData: c.CAData,
	}
	if len(c.CAData) > 0 {
		access.Clusters[name].CertificateAuthority = ""
	}
	access.AuthInfos[name] = &clientcmdapi.AuthInfo{
		Token: c.BearerToken, TokenFile: c.BearerTokenFile, Username: c.Username, Password: c.Password,
		ClientCertificate: c.CertFile, ClientCertificateData: c.CertData, ClientKey: c.KeyFile, ClientKeyData: c.KeyData,
		Impersonate: c.Impersonate.UserName, ImpersonateGroups: c.Impersonate.Groups, Exec: c.ExecProvider,
	}
	access.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	access.CurrentContext = name
	data, err := clientcmd.Write(*access)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.opts.Dir, 0o700); err != nil {
		return err
	}
	return diskfile.WriteFile(r.kubeconfig(), data)
}
