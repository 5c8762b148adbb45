package bundle

import (
	"crypto"
	"encoding/json"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content/memory"
)

// person holds a key of a test's trust document.
type person struct {
	signature.Signer
	key TrustKey
	pub crypto.PublicKey
}

func newPerson(t testing.TB, name string) person {
	s, pub := newKey(t)
	key, err := NewTrustKey(name, pub)
	require.NoError(t, err)
	return person{s, key, pub}
}

func roleOf(threshold int, people ...person) Role {
	r := Role{Threshold: threshold}
	for _, p := range people {
		r.Keys = append(r.Keys, p.key)
	}
	return r
}

func sampleTrust(version int64, root, release Role) TrustDocument {
	issued := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return TrustDocument{
		Schema: TrustSchema, Platform: "default", Version: version, Epoch: 1,
		IssuedAt: issued, ExpiresAt: issued.AddDate(1, 0, 0), Root: root, Release: release,
	}
}

func sealed(t testing.TB, d TrustDocument, signers ...person) []byte {
	envelope, err := SealTrust(d)
	require.NoError(t, err)
	for _, s := range signers {
		envelope, err = SignTrust(envelope, s)
		require.NoError(t, err)
	}
	return envelope
}

func requireRejected(t testing.TB, err error, words string) {
	t.Helper()
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, TrustDocumentRejected, refusal.Reason)
	require.Contains(t, refusal.Message, words)
}

func TestATrustDocumentIsBelievedWhenTheRootsBeforeItHaveSigned(t *testing.T) {
	a, b, c, d, stranger := newPerson(t, "a"), newPerson(t, "b"), newPerson(t, "c"), newPerson(t, "d"), newPerson(t, "x")
	release := roleOf(1, newPerson(t, "ci"))
	first := sampleTrust(1, roleOf(2, a, b, c), release)
	chain, err := TrustChain(nil).Append(sealed(t, first, a, b))
	require.NoError(t, err)
	require.Equal(t, 2, chain.Current().Root.Threshold)

	// Root keys change from a, b, c to c, d: two of the old and two of the new have to sign.
	second := sampleTrust(2, roleOf(2, c, d), release)
	for _, tc := range []struct {
		name    string
		change  func(*TrustDocument)
		signers []person
		words   string
	}{
		{"by nobody", nil, nil, "signed by 0 of its own root keys"},
		{"by the old alone", nil, []person{a, b}, "signed by 0 of its own root keys"},
		{"by the new alone", nil, []person{c, d}, "signed by 1 of the previous version's root keys, 2 are needed"},
		{"by one who is in both", nil, []person{c}, "1 of its own root keys"},
		{"by strangers", nil, []person{stranger}, "0 of its own"},
		{"that skips a version", func(d *TrustDocument) { d.Version = 3 }, []person{a, c, d}, "the next one here is 2"},
		{"of the first version again", func(d *TrustDocument) { d.Version = 1 }, []person{a, c, d}, "the next one here is 2"},
		{"of another platform", func(d *TrustDocument) { d.Platform = "other" }, []person{a, c, d}, `"other"`},
	} {
		t.Run("not one signed "+tc.name, func(t *testing.T) {
			doc := second
			if tc.change != nil {
				tc.change(&doc)
			}
			_, err := chain.Append(sealed(t, doc, tc.signers...))
			requireRejected(t, err, tc.words)
		})
	}
	chain, err = chain.Append(sealed(t, second, a, c, d))
	require.NoError(t, err)

	third := sampleTrust(3, roleOf(2, c, d), release)
	third.Epoch = 5
	chain, err = chain.Append(sealed(t, third, c, d))
	require.NoError(t, err)
	require.EqualValues(t, 5, chain.Current().Trust().Epoch)
	fourth := sampleTrust(4, roleOf(2, c, d), release)
	fourth.Epoch = 4
	_, err = chain.Append(sealed(t, fourth, c, d))
	requireRejected(t, err, "has epoch 4, the one before has 5")
}

func TestOneKeyDoesNotCountTwiceInATrustDocument(t *testing.T) {
	a, b := newPerson(t, "a"), newPerson(t, "b")
	doc := sampleTrust(1, roleOf(2, a, b), roleOf(1, a))
	once := sealed(t, doc, a)
	twice, err := SignTrust(once, a)
	require.NoError(t, err)
	require.Equal(t, once, twice, "signing again changes nothing")

	var env, other dsse.Envelope
	require.NoError(t, json.Unmarshal(once, &env))
	require.NoError(t, json.Unmarshal(sealed(t, doc, a), &other))
	other.Signatures[0].KeyID = b.key.ID // another signature of a, under the name of b
	env.Signatures = append(env.Signatures, other.Signatures...)
	forged, err := json.Marshal(env)
	require.NoError(t, err)
	_, err = TrustChain(nil).Append(forged)
	requireRejected(t, err, "signed by 1 of its own root keys, 2 are needed")

	listed := doc
	listed.Root.Keys = append(listed.Root.Keys, a.key)
	_, err = SealTrust(listed)
	require.ErrorContains(t, err, "listed twice")
	stranger := newPerson(t, "b")
	listed.Root.Keys = []TrustKey{a.key, {ID: b.key.ID, PublicKey: stranger.key.PublicKey}}
	_, err = SealTrust(listed)
	require.ErrorContains(t, err, "has the id "+stranger.key.ID)
}

func TestATrustDocumentThatMakesNoSenseIsRejected(t *testing.T) {
	a := newPerson(t, "a")
	for name, change := range map[string]func(*TrustDocument){
		"a schema from the future":   func(d *TrustDocument) { d.Schema++ },
		"no platform":                func(d *TrustDocument) { d.Platform = "" },
		"version 0":                  func(d *TrustDocument) { d.Version = 0 },
		"epoch 0":                    func(d *TrustDocument) { d.Epoch = 0 },
		"a first epoch other than 1": func(d *TrustDocument) { d.Epoch = 2 },
		"an end before its beginning": func(d *TrustDocument) {
			d.ExpiresAt = d.IssuedAt
		},
		"no root keys":             func(d *TrustDocument) { d.Root = Role{} },
		"threshold 0":              func(d *TrustDocument) { d.Release.Threshold = 0 },
		"a threshold out of reach": func(d *TrustDocument) { d.Release.Threshold = 2 },
		"a key that is none":       func(d *TrustDocument) { d.Root.Keys = []TrustKey{{ID: a.key.ID, PublicKey: "x"}} },
	} {
		t.Run(name, func(t *testing.T) {
			d := sampleTrust(1, roleOf(1, a), roleOf(1, a))
			change(&d)
			_, err := d.Marshal()
			require.Error(t, err)
			data, err := json.Marshal(d)
			require.NoError(t, err)
			_, err = ParseTrustDocument(data)
			requireRejected(t, err, "")
		})
	}
}

func TestTheSameTrustDocumentIsTheSameBytes(t *testing.T) {
	a, b := newPerson(t, "a"), newPerson(t, "b")
	one, err := sampleTrust(1, roleOf(1, a, b), roleOf(1, b, a)).Marshal()
	require.NoError(t, err)
	two, err := sampleTrust(1, roleOf(1, b, a), roleOf(1, a, b)).Marshal()
	require.NoError(t, err)
	require.Equal(t, string(one), string(two))
}

func TestAChainHasAnEnd(t *testing.T) {
	a := newPerson(t, "a")
	role := roleOf(1, a)
	longest := make(TrustChain, MaxTrustVersions-1)
	longest[len(longest)-1].Document = sampleTrust(MaxTrustVersions-1, role, role)
	longest, err := longest.Append(sealed(t, sampleTrust(MaxTrustVersions, role, role), a))
	require.NoError(t, err)
	_, err = longest.Append(sealed(t, sampleTrust(MaxTrustVersions+1, role, role), a))
	requireRejected(t, err, "more than 1000 versions")
}

func TestAChainIsWalkedFromARegistry(t *testing.T) {
	a, ci := newPerson(t, "a"), newPerson(t, "ci")
	store := memory.New()
	put := func(version int64, envelope []byte) {
		blobs, err := TrustManifest(envelope)
		require.NoError(t, err)
		push(t, store, blobs...)
		require.NoError(t, store.Tag(t.Context(), blobs[len(blobs)-1].Descriptor, TrustTag(version)))
	}
	chain, err := TrustChain(nil).Append(sealed(t, sampleTrust(1, roleOf(1, a), roleOf(1, ci)), a))
	require.NoError(t, err)
	chain, more, err := chain.Next(t.Context(), store)
	require.NoError(t, err)
	require.False(t, more)

	put(2, sealed(t, sampleTrust(2, roleOf(1, a), roleOf(1, ci)), a))
	put(3, sealed(t, sampleTrust(3, roleOf(1, ci), roleOf(1, ci)), ci)) // a release key is no root
	chain, more, err = chain.Next(t.Context(), store)
	require.NoError(t, err)
	require.True(t, more)
	same, more, err := chain.Next(t.Context(), store)
	requireRejected(t, err, "0 of the previous version's root keys")
	require.False(t, more)
	require.Equal(t, chain, same)

	m := publish(t, store, sampleRelease(Content{DiffID: "sha256:" + sampleDigest}), nil)
	require.NoError(t, store.Tag(t.Context(), m, TrustTag(3)))
	_, _, err = chain.Next(t.Context(), store)
	requireRejected(t, err, "no trust document")

	m = publish(t, store, sampleRelease(Content{DiffID: "sha256:" + sampleDigest}), func(m *ocispec.Manifest) {
		m.ArtifactType, m.Config = MediaTypeTrust, NewBlob(MediaTypeTrust, []byte("lost")).Descriptor
	})
	require.NoError(t, store.Tag(t.Context(), m, TrustTag(3)))
	_, more, err = chain.Next(t.Context(), store)
	require.ErrorContains(t, err, "not all of it is there", "a version whose content is lost is not one that never was")
	require.False(t, more)
}

const sampleDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestTheLargestTrustDocumentFitsAManifest(t *testing.T) {
	var people []person
	for range maxRoleKeys {
		people = append(people, newPerson(t, "a name as people have it"))
	}
	envelope := sealed(t, sampleTrust(1, roleOf(maxRoleKeys, people...), roleOf(1, people...)), people...)
	require.LessOrEqual(t, len(envelope), MaxTrustBytes)
	blobs, err := TrustManifest(envelope)
	require.NoError(t, err)
	require.LessOrEqual(t, len(blobs[len(blobs)-1].Data), MaxManifestBytes)
	_, err = TrustChain(nil).Append(envelope)
	require.NoError(t, err)
}
