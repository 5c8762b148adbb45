package zarftest

import (
	"archive/tar"
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"sigs.k8s.io/yaml"
)

// The files of a package. Zarf's signature is a sigstore bundle, the stand-in's the bare one.
const (
	configFile    = "zarf.yaml"
	checksumsFile = "checksums.txt"
	signatureFile = "zarf.bundle.sig"
)

// files is the content of a package.
type files map[string][]byte

// checksums are those of all files but the two that stand for the others.
func (f files) checksums() []byte {
	var lines []string
	for name, data := range f {
		if name != configFile && name != checksumsFile && name != signatureFile {
			lines = append(lines, digest.FromBytes(data).Encoded()+" "+name)
		}
	}
	slices.Sort(lines)
	return []byte(strings.Join(lines, "\n"))
}

func (z *standIn) create(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return fmt.Errorf("failed to create package: unable to access package path %q: %w", dir, err)
	}
	c := &config{}
	if err := yaml.Unmarshal(data, c); err != nil {
		return fmt.Errorf("failed to create package: %w", err)
	}
	content := files{}
	for _, comp := range c.Components {
		for _, m := range comp.Manifests {
			for i, file := range m.Files {
				if content[fmt.Sprintf("components/%s/manifests/%s-%d.yaml", comp.Name, m.Name, i)], err = os.ReadFile(filepath.Join(dir, file)); err != nil {
					return fmt.Errorf("failed to create package: unable to copy manifest %s: %w", file, err)
				}
			}
		}
	}
	content[checksumsFile] = content.checksums()
	c.Metadata["aggregateChecksum"] = digest.FromBytes(content[checksumsFile]).Encoded()
	c.Build = map[string]any{"version": "v0.84.0", "signed": z.signingKey != ""}
	if content[configFile], err = yaml.Marshal(c); err != nil {
		return err
	}
	if z.signingKey != "" {
		if content[signatureFile], err = z.sign(os.Getenv("ZARF_PACKAGE_CREATE_SIGNING_KEY_PASSWORD"), content[configFile]); err != nil {
			return fmt.Errorf("failed to create package: unable to sign package: %w", err)
		}
	}
	z.log.Info("writing package to disk")
	return os.WriteFile(filepath.Join(z.output, "zarf-package-"+c.name()+"-amd64.tar.zst"), content.pack(), 0o600)
}

func (z *standIn) sign(password string, data []byte) ([]byte, error) {
	key, err := z.unlock(password)
	if err != nil {
		return nil, err
	}
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	return signer.SignMessage(bytes.NewReader(data))
}

// unlock opens the signing key, unless it lies open beside it for this password.
func (z *standIn) unlock(password string) (crypto.PrivateKey, error) {
	locked, err := os.ReadFile(z.signingKey)
	if err != nil {
		return nil, err
	}
	if open, err := os.ReadFile(filepath.Join(filepath.Dir(z.signingKey), unlockedName(locked, password))); err == nil {
		return cryptoutils.UnmarshalPEMToPrivateKey(open, nil)
	}
	return cryptoutils.UnmarshalPEMToPrivateKey(locked, cryptoutils.StaticPasswordFunc([]byte(password)))
}

// unlockedName is that of a file with the open form of a key, which spares the stand-in cosign's scrypt.
func unlockedName(locked []byte, password string) string {
	return "unlocked-" + digest.FromString(password+"\n"+string(locked)).Encoded()
}

// pack is not compressed, which nobody but the stand-in could notice.
func (f files) pack() []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	names := []string{}
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(f[name]))}) // into memory
		_, _ = w.Write(f[name])
	}
	_ = w.Close()
	return out.Bytes()
}

// load reads a package from a file, from a registry of this machine, or from the test's, which is a folder of files by
// digest, and verifies it as "load package" does. Partial leaves out what does not define it.
func (z *standIn) load(source string, partial bool) (files, *config, digest.Digest, error) {
	f, identity, err := z.read(source, partial)
	if err != nil {
		return nil, nil, "", fmt.Errorf("unable to load package: %w", err)
	}
	c := &config{}
	if err := yaml.Unmarshal(f[configFile], c); err != nil {
		return nil, nil, "", err
	}
	if err := z.check(f, c, partial); err != nil {
		return nil, nil, "", fmt.Errorf("unable to load package: %w", err)
	}
	return f, c, identity, nil
}

func (z *standIn) read(source string, partial bool) (files, digest.Digest, error) {
	if r := parseRemote(source); r != nil {
		z.log.Info("pulling package", "name", map[string]string{"Registry": r.host, "Repository": r.repository, "Reference": r.pinned})
		f, err := r.pull(z.cache, partial)
		return f, digest.Digest(r.pinned), err
	}
	if _, pinned, ok := strings.Cut(source, "@sha256:"); strings.HasPrefix(source, "oci://") && ok {
		source = filepath.Join(z.dir, "registry", pinned)
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return nil, "", err
	}
	f, err := readFiles(data)
	return f, digest.FromBytes(data), err
}

// check has the words of PackageLayout.VerifyPackageSignature.
func (z *standIn) check(f files, c *config, partial bool) error {
	if !partial && !bytes.Equal(f[checksumsFile], f.checksums()) || c.Metadata["aggregateChecksum"] != digest.FromBytes(f[checksumsFile]).Encoded() {
		return errors.New("package checksum mismatch")
	}
	signed, _ := c.Build["signed"].(bool)
	var err error
	switch {
	case !signed && z.key != "":
		return errors.New("signature verification failed: verification material was provided but the package is not signed")
	case !signed:
		err = errors.New("package is not signed - verification cannot be performed: no verification material available")
	case z.key == "":
		err = errors.New("package was signed with a key; provide --key to verify: no verification material available")
	default:
		if err := verify(z.key, f); err != nil {
			return fmt.Errorf("signature verification failed: %w", err)
		}
		fmt.Fprintln(os.Stderr, "Verified OK") // by cosign's library, in no log's format
	}
	if err != nil && z.verify == "always" {
		return fmt.Errorf("signature verification failed: %w", err)
	}
	return nil
}

func verify(keyFile string, f files) error {
	pem, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(pem)
	if err != nil {
		return err
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return err
	}
	return verifier.VerifySignature(bytes.NewReader(f[signatureFile]), bytes.NewReader(f[configFile]))
}

func (z *standIn) inspect(source string) error {
	f, _, _, err := z.load(source, true)
	if err != nil {
		return err
	}
	z.log.Info("inspecting package")
	fmt.Println(string(f[configFile]))
	return nil
}
