// Package fleetcmd holds the commands that ask a hub about the fleet: wherry get, describe, history, compare, drift, events,
// wherry rollout commit and wherry rollout workload. Begin with Get.
//
// All of them work on fleet.Answers, either in this process on a hub's folder or over HTTP; source.go decides which. Each kind
// of rows has one list of columns, from which output.go writes all forms.
package fleetcmd
