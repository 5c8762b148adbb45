// Package promotion tests the way of a change to all rings of production with the real programs: a registry, agents, git
// repositories, and with a hub or without one. One story has a change of the base, from main, the other what two application teams
// deliver. Commands are killed at their writes and run again, and after each of them an oracle reads every record that was ever
// published and compares it with what the clusters had proved by then. The tests have the build tag e2e; they need no cluster.
package promotion
