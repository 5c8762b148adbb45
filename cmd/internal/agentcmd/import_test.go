package agentcmd

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// streamOf is a result for the stream dev/TYPE.
func streamOf(clusterType string, o intake.Outcome) intake.Stream {
	return intake.Stream{Environment: "dev", ClusterType: clusterType, Outcome: o}
}

func TestTheTableOfAnImport(t *testing.T) {
	own := streamOf("drone", intake.Taken)
	own.Own, own.Release, own.Bytes = true, "12 (68846e7d)", 312<<20
	bad := streamOf("relay", intake.Refused)
	bad.Release, bad.Reason, bad.Message = "4 (0aa1f2b3)", bundle.Unsigned, "manifest sha256:0… has no signature\x1b[31m\nand more"
	done := imported{
		name:    "site.tar",
		result:  agent.ImportResult{Streams: []intake.Stream{streamOf("camera", intake.Here), own, streamOf("lamp", intake.Foreign), bad, streamOf("anchor", intake.Taken)}},
		acks:    &outbox.Acknowledged{Deleted: 3, Left: 1},
		reports: &writtenReports{File: "reports.tar", Reports: 4, Clusters: 2},
	}
	var out bytes.Buffer
	require.NoError(t, cli.Print(&out, "table", nil, func(w io.Writer) { writeImport(w, summarize(done)) }))
	require.Equal(t, `package  site.tar: 5 streams, 1 refused, 1 foreign, 2 taken, 1 here; 312 MiB copied
acks     deleted 3 reports, 1 left
reports  wrote 4 reports of 2 clusters to reports.tar

STREAM           RELEASE        RESULT   COPIED   REASON
dev/relay        4 (0aa1f2b3)   refused  -        Unsigned: manifest sha256:0… has no signature\u001b[31m\nand more
dev/lamp         -              foreign  -        -
dev/drone (own)  12 (68846e7d)  taken    312 MiB  -
dev/anchor       -              taken    -        -
dev/camera       -              here     -        -

`, out.String())
	require.Equal(t, map[intake.Outcome]int{intake.Refused: 1, intake.Foreign: 1, intake.Taken: 2, intake.Here: 1}, summarize(done).Outcomes)
	require.Equal(t, "site.tar: here", summarize(imported{name: "site.tar", result: agent.ImportResult{Streams: []intake.Stream{streamOf("drone", intake.Here)}}}).totals())
}

func TestTheResultInPlainWords(t *testing.T) {
	require.Equal(t, "RESULT-ship_8-tar.txt", resultName("Ship_8.tar"))
	now := time.Date(2026, 11, 29, 1, 2, 3, 0, time.UTC)
	own := streamOf("drone", intake.Refused)
	own.Own, own.Reason, own.Message = true, bundle.Unsigned, "no signature"
	done := imported{name: "site.tar", status: &agent.Status{State: bundle.Compliant, Cluster: agent.ClusterStatus{Name: "plant-7", Environment: "dev", Type: "drone"}}, result: agent.ImportResult{Streams: []intake.Stream{own}}}
	var out bytes.Buffer
	require.NoError(t, writeResult(&out, done, cli.Fail(cli.Denied, errors.New("release refused:\x1b[31m Unsigned"), "sign it"), now))
	require.Equal(t, `Refused: nothing was changed for this, and what ran before keeps running.

Why: release refused:\u001b[31m Unsigned
What to do: sign it
Written at 2026-11-29 01:02:03 UTC, by the clock of this machine.

package  site.tar: refused

STREAM           RELEASE  RESULT   COPIED  REASON
dev/drone (own)  -        refused  -       Unsigned: no signature

cluster  plant-7 (dev/drone)
agent    not running; showing the last known state
state    compliant
queue    0 reports
`, out.String())
	for _, code := range []int{cli.OK, cli.No, cli.Usage, cli.Denied, cli.NotYet, cli.Interrupted} {
		require.NotEmpty(t, inWords[code], code)
	}
	out.Reset()
	require.NoError(t, writeResult(&out, done, nil, now))
	require.Contains(t, out.String(), "All is well: the cluster has what this medium holds for it, and runs it.\n\nWritten at")
}

func TestEachOutcomeHasARank(t *testing.T) {
	for _, o := range []intake.Outcome{intake.Taken, intake.Here, intake.Older, intake.Refused, intake.LacksBase, intake.NoRoom, intake.Foreign, intake.Unfinished} {
		require.GreaterOrEqual(t, rankOf(o), 0, o)
	}
	require.Len(t, outcomes, 8)
}

func TestTheExitCodeOfAnImport(t *testing.T) {
	compliant := agent.Status{State: bundle.Compliant, Items: []bundle.Item{{State: bundle.Compliant}}}
	own := intake.Stream{Environment: "dev", ClusterType: "drone", Own: true, Outcome: intake.Taken}
	refusedOwn := own
	refusedOwn.Outcome = intake.Refused
	foreign := own
	foreign.Outcome = intake.Foreign
	damagedOwn := refusedOwn
	damagedOwn.Reason = bundle.DigestMismatch
	noRoom := own
	noRoom.Outcome = intake.NoRoom
	refusedStatus := agent.Status{State: bundle.Rejected, Release: agent.ReleaseStates{Refused: &agent.RefusedStatus{Digest: digest.FromString("x"), Reason: bundle.Unsigned}}}
	for name, test := range map[string]struct {
		verdict agent.Verdict
		err     string
		status  agent.Status
		streams []intake.Stream
		code    int
		says    string
	}{
		"all taken":      {agent.Done, "", compliant, []intake.Stream{own, streamOf("lamp", intake.Taken)}, cli.OK, ""},
		"again":          {agent.Idle, "", compliant, []intake.Stream{streamOf("lamp", intake.Here)}, cli.OK, ""},
		"others foreign": {agent.Done, "", compliant, []intake.Stream{own, streamOf("lamp", intake.Foreign)}, cli.OK, ""},
		"some not":       {agent.Done, "", compliant, []intake.Stream{own, streamOf("a", intake.LacksBase), streamOf("b", intake.NoRoom)}, cli.No, "2 of 3 streams not taken; dev/b: no room|make room, or raise --import-budget, and import the package again"},
		"some not, while the own is progressing": {
			agent.Done, "",
			agent.Status{State: bundle.Progressing, Items: []bundle.Item{{State: bundle.Progressing}}},
			[]intake.Stream{own, streamOf("a", intake.LacksBase)},
			cli.No, "1 of 2 streams not taken; dev/a: lacks its base|have a complete package exported for this stream, without --since",
		},
		"own refused": {agent.Refused, "Unsigned: no signature", refusedStatus, []intake.Stream{refusedOwn, streamOf("lamp", intake.Taken)}, cli.Denied, "release refused: Unsigned: no signature|nothing was applied; releases have to be signed with the key that --key names"},
		"another platform": {
			agent.Refused, "WrongPlatform: for tea",
			agent.Status{Platform: "coffee", Cluster: agent.ClusterStatus{Environment: "dev", Type: "drone"}},
			[]intake.Stream{foreign},
			cli.Denied, `the package has nothing for this agent: WrongPlatform: for tea|the package holds dev/drone of the platform "tea"; this agent is dev/drone of the platform "coffee"`,
		},
		"own damaged": {
			agent.Refused, "DigestMismatch: x",
			agent.Status{State: bundle.Pending},
			[]intake.Stream{damagedOwn},
			cli.Denied, "DigestMismatch: x|what runs keeps running; " + cli.DamagedHint,
		},
		"own without room": {
			agent.Refused, "NoRoom: x",
			agent.Status{State: bundle.Pending},
			[]intake.Stream{noRoom},
			cli.Denied, "NoRoom: x|what runs keeps running; make room, or raise --import-budget, and import the package again",
		},
		"cut short": {agent.Broken, "the file is cut short", compliant, []intake.Stream{streamOf("lamp", intake.Unfinished)}, cli.Failed, "the file is cut short|"},
	} {
		err := importExit(&cobra.Command{}, agent.ImportResult{Result: agent.Result{Verdict: test.verdict, Error: test.err, Status: test.status}, Streams: test.streams}, `dev/drone of the platform "tea"`, bundle.ReportCluster{})
		if test.code == cli.OK {
			require.NoError(t, err, name)
			continue
		}
		var e *cli.Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, test.code, e.Code, name)
		require.Equal(t, test.says, e.Error()+"|"+e.Hint, name)
	}
}

func TestSeveralErrorsAreOneWithTheFirstCodeAndHint(t *testing.T) {
	require.NoError(t, joined(nil, nil))
	only := cli.Fail(cli.No, io.EOF, "x")
	require.Equal(t, only, joined(nil, only))
	var e *cli.Error
	require.ErrorAs(t, joined(errors.New("a"), nil, cli.Fail(cli.Denied, errors.New("b"), "do b")), &e)
	require.Equal(t, cli.Error{Code: cli.Failed, Err: e.Err, Hint: "do b"}, *e)
	require.Equal(t, "a\nb", e.Error())
}

func TestWhichMediaAreTriedAgain(t *testing.T) {
	status := &agent.Status{}
	with := func(v agent.Verdict, streams ...intake.Stream) imported {
		return imported{name: "site.tar", status: status, result: agent.ImportResult{Result: agent.Result{Verdict: v}, Streams: streams}}
	}
	for name, test := range map[string]struct {
		found medium.Found
		done  imported
		want  medium.Outcome
	}{
		"taken":                  {medium.Found{Packages: 1}, with(agent.Done, streamOf("a", intake.Taken)), medium.Ended},
		"partly taken":           {medium.Found{Packages: 1}, with(agent.Done, streamOf("a", intake.Taken), streamOf("b", intake.Refused)), medium.Ended},
		"refused":                {medium.Found{Packages: 1}, with(agent.Refused, streamOf("a", intake.Refused)), medium.Ended},
		"no room for some":       {medium.Found{Packages: 1}, with(agent.Done, streamOf("a", intake.Taken), streamOf("b", intake.NoRoom)), medium.Failed},
		"pulled out":             {medium.Found{Packages: 1}, with(agent.Broken, streamOf("a", intake.Unfinished)), medium.Failed},
		"the agent does not run": {medium.Found{Packages: 1}, imported{name: "site.tar"}, medium.Failed},
		"acknowledgements":       {medium.Found{Acks: []string{"a"}}, imported{status: status}, medium.Ended},
	} {
		require.Equal(t, test.want, outcomeOf(test.found, test.done), name)
	}
}

func TestFilesAreReadOneAfterTheOther(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, part := range []string{"one ", "", "two ", "three"} {
		path := filepath.Join(dir, "part"+part)
		require.NoError(t, os.WriteFile(path, []byte(part), 0o600))
		paths = append(paths, path)
	}
	all := &concatenation{paths: paths}
	data, err := io.ReadAll(all)
	require.NoError(t, err)
	require.Equal(t, "one two three", string(data))
	require.NoError(t, all.Close())

	_, err = io.ReadAll(&concatenation{paths: []string{paths[0], filepath.Join(dir, "none")}})
	require.ErrorIs(t, err, os.ErrNotExist)
	half := &concatenation{paths: paths}
	_, err = half.Read(make([]byte, 2))
	require.NoError(t, err)
	require.NoError(t, half.Close())
	n, err := half.Read(make([]byte, 2))
	require.Zero(t, n)
	require.ErrorIs(t, err, io.EOF)
}

func TestNoSettingAllowsExpiredReleases(t *testing.T) {
	for _, s := range config.Settings() {
		require.NotContains(t, s.Flag, "expired")
	}
	file := filepath.Join(t.TempDir(), "agent.yaml")
	for _, content := range []string{"allowExpired: 'true'\n", "serve:\n  allowExpired: x\n"} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := config.Read(config.Sources{File: file, Named: true, Flag: func(string) ([]string, bool) { return nil, false }})
		require.ErrorContains(t, err, "no setting allows expired releases")
	}
	_, err := config.Read(config.Sources{
		Flag:    func(string) ([]string, bool) { return nil, false },
		Environ: func(name string) (string, bool) { return "x", name == "WHERRY_ALLOW_EXPIRED" },
	})
	require.ErrorContains(t, err, "no setting allows expired releases")

	var r reason
	require.Error(t, r.Set(" \t"))
	require.Error(t, r.Set("one\ntwo"))
	require.NoError(t, r.Set(" the ship is late "))
	require.Equal(t, "the ship is late", r.String())
}
