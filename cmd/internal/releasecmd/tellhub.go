package releasecmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/announce"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// TellHub sends what was published to the hub, and prints a warning if it cannot: that is never an error, since the
// publication stands.
func (p *Publication) TellHub(cmd *cobra.Command, done *publisher.Published) {
	url := p.Fleet.URL()
	if url == "" || done.Record.Digest == "" {
		return
	}
	if done.Record.Result == releases.OutcomePending {
		cmd.PrintErrf("note: the hub is told once all have signed: publish again with --hub then\n")
		return
	}
	if done.Record.Result == releases.OutcomeSkipped {
		return
	}
	learned, err := p.sendTo(cmd, done)
	var refused *hubapi.Error
	switch {
	case errors.As(err, &refused) && refused.Code == hubapi.CodeUnauthenticated:
		cmd.PrintErrf("warning: published, and the hub was not told: %s (give --token-file, or run \"wherry login hub %s\")\n", cli.Indented(err.Error()), url)
	case err != nil:
		cmd.PrintErrf("warning: published, and the hub was not told: %s\n", cli.Indented(err.Error()))
	case !learned.Stored || len(learned.Refused) > 0:
		one := hubapi.RefusedRelease{Message: "it has not stored the record"}
		if len(learned.Refused) > 0 {
			one = learned.Refused[0]
		}
		cmd.PrintErrf("warning: published, and the hub did not take %d of the releases, such as %s: %s\n", len(learned.Refused), one.ClusterType, cli.Indented(one.Message))
	case learned.New:
		cmd.PrintErrf("the hub at %s was told: %s\n", url, show.Count(learned.Releases, "new release"))
	}
}

// sendTo sends the documents, and then once more with the trees that the hub lacks.
func (p *Publication) sendTo(cmd *cobra.Command, done *publisher.Published) (hubapi.Learned, error) {
	none := hubapi.Learned{}
	hub, err := p.Fleet.Client(cmd)
	if err != nil {
		return none, err
	}
	from, err := p.To.Open(p.Registry.Options())
	if err != nil {
		return none, err
	}
	publication, err := announce.Read(cmd.Context(), from, done.Environment, done.Record.Digest)
	if err != nil {
		return none, err
	}
	learned, err := sendArchive(cmd, hub, publication, nil)
	if missing := learned.MissingContent(); err == nil && len(missing) > 0 {
		learned, err = sendArchive(cmd, hub, publication, missing)
	}
	return learned, err
}

func sendArchive(cmd *cobra.Command, hub client.Client, p *announce.Publication, trees []digest.Digest) (hubapi.Learned, error) {
	none := hubapi.Learned{}
	size, err := p.Size(trees)
	if err != nil {
		return none, err
	}
	if size > hubapi.MaxArchiveBytes {
		return none, fmt.Errorf("releases of %d bytes are too many to send, at most %d; have the hub watch the location", size, hubapi.MaxArchiveBytes)
	}
	folder, err := diskfile.NewScratch()
	if err != nil {
		return none, err
	}
	defer folder.Close()
	file, err := os.Create(filepath.Join(folder.Path, "releases.tar"))
	if err != nil {
		return none, err
	}
	defer file.Close()
	err = p.Write(cmd.Context(), file, trees)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return none, err
	}
	return hub.SendReleases(cmd.Context(), io.NopCloser(file))
}
