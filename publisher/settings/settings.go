// Package settings finds the platform repository around a folder and the settings of commands in it.
//
// Begin with [Open], which returns the settings for the platform around a folder, each with its origin, or with
// [Outside] where there is no platform. [Settings.Locate] then finds an environment and where its objects lie: a folder
// of the repository, another work tree of it, or a branch.
//
// Environment variables override wherry.yaml, which overrides the context in use and then the Platform object; flags, which
// override all of them, belong to the caller. Only files of this machine are read, a bounded number of them, and no
// network is used. Messages repeat no credentials of URLs.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Value is a setting. The zero value is one that nothing gives.
type Value struct {
	Text string
	// Origin names its source, such as "variable WHERRY_HUB" or "wherry.yaml:3".
	Origin string
}

// Given reports whether anything gives the value.
func (v Value) Given() bool { return v.Text != "" }

// Settings are what commands take where no flag says otherwise.
type Settings struct {
	Registry, Environment, Hub, Cache Value
	// Trust is the file with version 1 of a trust document; without it, Keys are files with public keys.
	Trust Value
	Keys  []Value
	// SignWith are files with private keys, and cosign:URI.
	SignWith []Value
	// Mirrors maps the beginnings of git URLs to places, Workloads registrations to places.
	Mirrors, Workloads map[string]Value

	// Places are the repositories and registries of the Platform's workspaces, and AllowPrivate is its spec.sources.allowPrivate.
	Places, AllowPrivate []string

	// Platform is the repository, nil outside any.
	Platform *Repository
}

// CosignPrefix begins a key of SignWith that is in a token or a key service.
const CosignPrefix = "cosign:"

// Sources are what settings are read from beside the repository.
type Sources struct {
	// Getenv returns an environment variable.
	Getenv func(string) string
	// Context is the context in use, the zero value for none.
	Context Context
}

// Open returns the settings for the platform around dir. Without one, the error wraps [ErrNoPlatform].
func Open(dir string, from Sources) (*Settings, error) {
	repo, err := Find(dir)
	if err != nil {
		return nil, err
	}
	own, err := repo.settings()
	if err != nil {
		return nil, err
	}
	shared, err := repo.sharedSettings()
	if err != nil {
		return nil, err
	}
	return merge(repo, variables(from.Getenv), own, from.Context.settings(), shared)
}

// Outside returns the settings where there is no platform: those of variables and of the context.
func Outside(from Sources) (*Settings, error) {
	return merge(nil, variables(from.Getenv), from.Context.settings())
}

// merge returns the settings of all layers, of which the first one that gives a setting wins.
func merge(repo *Repository, layers ...Settings) (*Settings, error) {
	all := &Settings{Platform: repo, Mirrors: map[string]Value{}, Workloads: map[string]Value{}}
	for _, l := range layers {
		all.Registry, all.Environment = cmp.Or(all.Registry, l.Registry), cmp.Or(all.Environment, l.Environment)
		all.Hub, all.Cache = cmp.Or(all.Hub, l.Hub), cmp.Or(all.Cache, l.Cache)
		if !all.Trust.Given() && len(all.Keys) == 0 { // one stands for the other
			all.Trust, all.Keys = l.Trust, l.Keys
		}
		all.Places, all.AllowPrivate = append(all.Places, l.Places...), append(all.AllowPrivate, l.AllowPrivate...)
		if len(all.SignWith) == 0 {
			all.SignWith = l.SignWith
		}
		for _, m := range []struct{ to, from map[string]Value }{{all.Mirrors, l.Mirrors}, {all.Workloads, l.Workloads}} {
			for name, v := range m.from {
				if _, ok := m.to[name]; !ok {
					m.to[name] = v
				}
			}
		}
	}
	if err := all.checkCache(repo); err != nil {
		return nil, err
	}
	return all, all.check()
}

// checkCache refuses a cache that a file of the repository puts into the repository: whoever can change that could
// decide the rendered content, where no review sees it.
func (s *Settings) checkCache(repo *Repository) error {
	if repo == nil || !s.Cache.Given() || strings.HasPrefix(s.Cache.Origin, "variable ") {
		return nil
	}
	dir, err := filepath.Abs(s.Cache.Text)
	if err != nil {
		return err
	}
	if below(dir, repo.Dir) || repo.Clone != nil && below(dir, repo.Clone.Top) {
		return s.Cache.wrong("cache", errors.New("the folder lies in the repository: name one outside"))
	}
	return nil
}

// The environment variables, beside WHERRY_AUTH_HOST, which package flags reads. Several files are separated by commas.
const (
	RegistryVariable    = "WHERRY_REGISTRY"
	EnvironmentVariable = "WHERRY_ENVIRONMENT"
	HubVariable         = "WHERRY_HUB"
	CacheVariable       = "WHERRY_CACHE"
	TrustVariable       = "WHERRY_TRUST"
	KeyVariable         = "WHERRY_KEY"
	SignWithVariable    = "WHERRY_SIGN_WITH"
	ContextVariable     = "WHERRY_CONTEXT"
)

func variables(getenv func(string) string) Settings {
	one := func(name string) Value {
		if text := getenv(name); text != "" {
			return Value{text, "variable " + name}
		}
		return Value{}
	}
	several := func(name string) (all []Value) {
		for text := range strings.SplitSeq(getenv(name), ",") {
			if text != "" {
				all = append(all, Value{text, "variable " + name})
			}
		}
		return all
	}
	return Settings{
		Registry: one(RegistryVariable), Environment: one(EnvironmentVariable), Hub: one(HubVariable), Cache: one(CacheVariable),
		Trust: one(TrustVariable), Keys: several(KeyVariable), SignWith: several(SignWithVariable),
	}
}

// fileSettings turns the keys of a file in the folder dir into settings. Paths are those from the current folder here.
func fileSettings(file, dir, here string, k kinds.Settings) Settings {
	at := func(t kinds.Text) Value {
		if t.Value == "" {
			return Value{}
		}
		return Value{t.Value, fmt.Sprintf("%s:%d", file, t.Line)}
	}
	path := func(t kinds.Text) Value { v := at(t); v.Text = relocate(v.Text, dir, here); return v }
	paths := func(list []kinds.Text) (all []Value) {
		for _, t := range list {
			if v := path(t); v.Given() {
				all = append(all, v)
			}
		}
		return all
	}
	places := func(m map[string]kinds.Text) map[string]Value {
		all := map[string]Value{}
		for name, t := range m {
			v := at(t)
			v.Text = relocatePlace(v.Text, dir, here)
			all[name] = v
		}
		return all
	}
	registry := at(k.Registry)
	if folder, ok := strings.CutPrefix(registry.Text, layoutPrefix); ok && folder != "" {
		registry.Text = layoutPrefix + relocate(folder, dir, here)
	}
	return Settings{
		Registry: registry, Environment: at(k.Environment), Hub: at(k.Hub), Cache: path(k.Cache),
		Trust: path(k.Trust), Keys: paths(k.Keys), SignWith: paths(k.SignWith),
		Mirrors: places(k.Mirrors), Workloads: places(k.Workloads),
	}
}

const layoutPrefix = "oci-layout:"

// relocate returns a path that a file in dir gives as it is from the folder here.
func relocate(path, dir, here string) string {
	if path == "" || filepath.IsAbs(path) || strings.HasPrefix(path, CosignPrefix) {
		return path
	}
	return From(here, filepath.Join(dir, filepath.FromSlash(path)))
}

// relocatePlace is relocate for a folder or a git place, FOLDER#BRANCH:PATH among them.
func relocatePlace(place, dir, here string) string {
	if place == "" || gitrepo.IsURL(place) {
		return place
	}
	folder, fragment, found := strings.Cut(place, "#")
	folder = relocate(folder, dir, here)
	if found {
		return folder + "#" + fragment
	}
	return folder
}

// From returns an absolute path as it is from the folder here: relative if that is shorter.
func From(here, path string) string {
	rel, err := filepath.Rel(here, path)
	if err != nil || len(rel) >= len(path) {
		return path
	}
	return rel
}

// check returns an error for settings that cannot be used. It names their origin.
func (s *Settings) check() error {
	if s.Registry.Given() {
		loc, err := oci.Parse(s.Registry.Text)
		if err == nil && loc.Archive != "" {
			err = fmt.Errorf("%s: %w", loc, oci.ErrReadOnly)
		}
		if err != nil {
			return s.Registry.wrong("registry", err)
		}
	}
	if s.Hub.Given() {
		u, err := url.Parse(s.Hub.Text)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			return s.Hub.wrong("hub", fmt.Errorf("not a URL such as https://hub.example.com"))
		case u.User != nil || u.RawQuery != "":
			return s.Hub.wrong("hub", fmt.Errorf("credentials do not belong into the URL of a hub"))
		}
	}
	if s.Environment.Given() {
		if err := oci.CheckName(s.Environment.Text); err != nil {
			return s.Environment.wrong("environment", err)
		}
	}
	for _, v := range s.SignWith {
		if strings.Contains(v.Text, "pin-value=") {
			return v.wrong("signWith", fmt.Errorf("a PIN does not belong into settings: it is asked for, or taken from COSIGN_PKCS11_PIN"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Workloads)) {
		v := s.Workloads[name]
		if !v.Given() {
			return &Error{Text: fmt.Sprintf("workloads.%s names no place", Public(name))}
		}
	}
	return nil
}

func (v Value) wrong(key string, err error) error {
	return &Error{Text: show.Redact(fmt.Sprintf("%s: %s: %v", v.Origin, key, err)), Err: err}
}

// Error is a mistake in settings. Its text names the file and line, or the variable.
type Error struct {
	Text string
	Hint string // may be empty
	Err  error
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause, whose text may hold credentials.
func (e *Error) Unwrap() error { return e.Err }
