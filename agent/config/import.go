package config

import "github.com/wherry-dev/wherry/agent/intake"

// Import configures what is stored of site packages.
type Import struct {
	// Streams is one of importStreams; empty is platform with an endpoint, and own without.
	Streams string
	// Budget bounds each stream but the agent's own, in bytes; zero is the default of intake.Options.
	Budget int64
}

const (
	streamsOwn      = "own"
	streamsPlatform = "platform"
)

// importStreams are the values of import.streams.
var importStreams = []string{streamsOwn, streamsPlatform}

func setImportBudget(c *Config, s string) (err error) {
	c.Import.Budget, err = storeSize(s)
	return err
}

// intakeOptions are those of what is stored of site packages.
func (c *Config) intakeOptions() intake.Options {
	others := c.Import.Streams == streamsPlatform || c.Import.Streams == "" && c.Serve.Address != ""
	return intake.Options{Others: others, Budget: c.Import.Budget}
}
