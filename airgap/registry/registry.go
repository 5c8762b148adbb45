// Package registry is an OCI registry in a folder, for demonstrations, tests and small sites.
//
// It runs distribution/v3's own handlers on its filesystem driver, but for the download of blobs, so it behaves as the
// registry that most people run. Open checks the folder, Handler fits any HTTP server, Serve runs one:
//
//	reg, err := registry.Open("/var/lib/wherry/registry", registry.Options{})
//	err = reg.Serve(ctx, listener)
//
// It has no authentication, no TLS and no garbage collection: run it on loopback, or behind a proxy that
// adds them. Bundles are signed, so anybody who can write to the registry can withhold releases from
// agents, but not forge them.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the driver that Open names
	"github.com/sirupsen/logrus"
)

const (
	headerTime   = 10 * time.Second
	idleTime     = 2 * time.Minute
	shutdownTime = 5 * time.Second
	// catalogEntries bounds the repositories that the registry lists in one response.
	catalogEntries = 1000
)

// Options are the optional parts of a registry. The zero value logs nothing.
type Options struct {
	// Log gets a line for each request that changes content or fails. Nil is silent.
	Log *slog.Logger
}

// Registry is an open registry. Close it when it is no longer served.
type Registry struct {
	app  *handlers.App
	root *os.Root // what distribution has stored
	log  *slog.Logger
}

// Open returns the registry whose content is in dir, which is created if it does not exist. It returns an error
// if dir is not writable. The caller closes the registry; Serve does so too.
func Open(dir string, opts Options) (*Registry, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("registry folder: %w", err)
	}
	if err := checkWritable(dir); err != nil {
		return nil, fmt.Errorf("registry folder %s: %w", dir, err)
	}
	root, err := openRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("registry folder %s: %w", dir, err)
	}
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// Distribution always logs through logrus' process-wide logger, which nothing else here uses. Handler
	// logs the lines that people need.
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{
		Storage: configuration.Storage{"filesystem": {"rootdirectory": dir}, "delete": {"enabled": true}},
		Catalog: configuration.Catalog{MaxEntries: catalogEntries},
	}
	// Site packages have the images of some platforms only, below an index that names all of them.
	config.Validation.Manifests.Indexes.Platforms = "none"
	return &Registry{app: handlers.NewApp(context.Background(), config), root: root, log: log}, nil
}

// checkWritable makes dir and writes to it, since distribution would find out at the first upload only.
func checkWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Close ends the registry's background work.
func (r *Registry) Close() error { return errors.Join(r.app.Shutdown(), r.root.Close()) }

// Handler serves the distribution API below /v2/.
func (r *Registry) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answer := &recorder{ResponseWriter: w, status: http.StatusOK}
		began := time.Now()
		if !r.serveBlob(answer, req) {
			r.app.ServeHTTP(answer, req)
		}
		level := slog.LevelDebug
		switch {
		case answer.status >= http.StatusInternalServerError:
			level = slog.LevelError
		case req.Method != http.MethodGet && req.Method != http.MethodHead:
			level = slog.LevelInfo
		}
		line := []any{"method", req.Method, "path", req.URL.Path, "status", answer.status, "duration", time.Since(began), "from", req.RemoteAddr}
		if len(answer.failure) > 0 {
			line = append(line, "answer", string(answer.failure))
		}
		r.log.Log(req.Context(), level, "registry request", line...)
	})
}

// recorder keeps the status of a response, and the beginning of the body if the status is an error of the server.
type recorder struct {
	http.ResponseWriter
	status  int
	failure []byte
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if left := 512 - len(r.failure); r.status >= http.StatusInternalServerError && left > 0 {
		r.failure = append(r.failure, p[:min(left, len(p))]...)
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Serve answers requests on l until ctx ends, gives running requests a moment to finish, and closes l and
// the registry. It returns nil if it ended because ctx did.
func (r *Registry) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           r.Handler(),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if server.Shutdown(grace) != nil {
			err = server.Close()
		}
		<-failed
	}
	if err != nil {
		err = fmt.Errorf("serve registry on %s: %w", l.Addr(), err)
	}
	return errors.Join(err, r.Close())
}
