package simulation

import (
	"fmt"

	"github.com/wherry-dev/wherry/bundle/show"
)

const (
	// bytesPerAgent and bytesPerAssignment are what an agent takes of this process's memory at its peak: its records of assignments, its part of
	// the hub, and the mapped pages of its state file. They rest on runs on two processors with GOGC=50. Resident at the peak were 1,000 agents of
	// 200 assignments with 1.66 to 1.73 GB, 300 of 200 with 0.68 GB, 300 of 20 with 0.23 GB and 40 of 20 with 0.12 GB. The estimate is at least a quarter
	// above each, since the garbage at the peak differs from run to run.
	bytesPerAgent      = 300 << 10
	bytesPerAssignment = 9 << 10
	baseBytes          = 200 << 20
	// filesPerAgent is the file descriptors of an agent at rest: its state file and its control socket.
	filesPerAgent = 2
	// filesPerConnection is a connection's end at the agent, its ends at the registry and at the hub, each of which closes its own later than the
	// agent where processors are few, and the files of a download: the blob that the registry sends, and the agent's part of it, the lock of that
	// and the folder of the store.
	filesPerConnection = 7
	// fewConnections are enough for any number of agents, which wait for one another then.
	fewConnections = 300
	baseFiles      = 500
)

// Room is what a simulation is expected to take, and what there is. Zero is not known.
type Room struct {
	Memory, FreeMemory int64 // in bytes
	Files, MaxFiles    int64 // file descriptors
}

// Room returns the room for the simulation.
func (o Options) Room() Room {
	o = o.withDefaults()
	n, assignments := int64(o.Clusters), int64(o.Assignments)
	if o.Plan != nil {
		assignments = 0
		for _, ct := range o.Plan.Result.ClusterTypes {
			assignments = max(assignments, int64(len(ct.Assignments)))
		}
	}
	r := Room{Memory: baseBytes + n*(bytesPerAgent+assignments*bytesPerAssignment), Files: n*filesPerAgent + fewConnections*filesPerConnection + baseFiles}
	r.FreeMemory, r.MaxFiles = freeMemory(), maxFiles()
	return r
}

// connections returns how many connections agents may have at one time, and the registry and the hub each.
func (o Options) connections() int {
	agents := int64(o.Clusters) * filesPerAgent
	if limit := maxFiles(); limit > 0 {
		return int(max(fewConnections, (limit-agents-baseFiles)/filesPerConnection))
	}
	return fewConnections
}

// checkRoom returns an error if the simulation does not fit on this machine.
func (o Options) checkRoom() error {
	r := o.Room()
	if r.FreeMemory > 0 && r.Memory > r.FreeMemory {
		return fmt.Errorf("%w: the simulation takes some %s of memory, and this machine has %s free", ErrOptions, show.Size(r.Memory), show.Size(r.FreeMemory))
	}
	if r.MaxFiles > 0 && r.Files > r.MaxFiles {
		return fmt.Errorf("%w: the simulation takes some %d file descriptors, and this process may have %d; see ulimit -n", ErrOptions, r.Files, r.MaxFiles)
	}
	return nil
}
