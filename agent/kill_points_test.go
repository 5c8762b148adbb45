package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What happens before a start of the agent.
const (
	afterUpdate    = "update"    // a release of which some assignments changed, came or went
	afterNothing   = "first"     // the same for an agent that has no state yet
	afterRemoval   = "removal"   // one that lists an assignment less
	afterFailing   = "failing"   // one of whose assignments fails
	afterRefused   = "refusing"  // one that nobody trusts
	afterWithdrawn = "withdrawn" // the good one again, after one that was refused
	afterDelta     = "delta"     // one with a delta from the one before
	afterRotation  = "rotation"  // a newer trust document, and a release of its key
	afterImport    = "import"    // a release by file, while the registry is away
	afterHubAway   = "hub away"  // an update while the hub is
	afterDrift     = "drift"     // somebody has changed the cluster
	afterOffline   = "offline"   // the registry is away
	afterGivingUp  = "giving up" // a release that fails until it is given up
	afterOperator  = "operator"  // a person goes back to an earlier release, pauses, and resumes
	afterVoid      = "void"      // a person goes back, and the roots begin a new epoch before that runs
)

// everyday are the events among which chance chooses.
var everyday = []string{
	afterUpdate, afterUpdate, afterRemoval, afterFailing, afterFailing, afterRefused, afterWithdrawn, afterDelta, afterRotation,
	afterImport, afterHubAway, afterDrift, afterOffline, afterGivingUp, afterOperator,
}

// atRandom is no named point: the agent runs as a service, and is killed after some time.
const atRandom = "at random"

// point is a moment at which agents are killed.
type point struct {
	name string
	// after is the event that leads there; any where it is empty.
	after string
}

// points are all of them. Those of commits have the function that changes the state. Those of the engine, of the
// hub and of the disk have their names from this harness, all others from the agent's code.
var points = []point{
	{"commit of Init: before", afterNothing},
	{"commit of Init: after", afterNothing},
	{"commit of introduce: before", afterNothing},
	{"commit of introduce: after", afterNothing},
	{"commit of believe: before", afterRotation},
	{"commit of believe: after", afterRotation},
	{"commit of noteAsked: before", afterRotation},
	{"commit of noteAsked: after", afterRotation},
	{"commit of accept: before", afterUpdate},
	{"commit of accept: after", afterUpdate},
	{"commit of forgive: before", afterWithdrawn},
	{"commit of forgive: after", afterWithdrawn},
	{"fetch: a document has arrived", afterUpdate},
	{"fetch: the layer begins", afterUpdate},
	{"fetch: some bytes", afterUpdate},
	{"fetch: sync of a chunk", afterUpdate},
	{"fetch: note of a chunk", afterUpdate},
	{"fetch: sync of the whole", afterUpdate},
	{"fetch: rename", afterUpdate},
	{"fetch: end of the note", afterUpdate},
	{"fetch: all is in the store", afterUpdate},
	{"commit of claim: before", afterImport},
	{"commit of claim: after", afterImport},
	{"intake: a document has arrived", afterImport},
	{"intake: a blob has arrived", afterImport},
	{"commit of finish: before", afterImport},
	{"commit of finish: after", afterImport},
	{"commit of Settle: before", afterImport},
	{"commit of Settle: after", afterImport},
	{"delta: it has arrived", afterDelta},
	{"delta: the tree is made", afterDelta},
	{"index: before", afterUpdate},
	{"index: half of it", afterUpdate},
	{"index: after", afterUpdate},
	{"stage: the folder is empty", afterUpdate},
	{"stage: half unpacked", afterUpdate},
	{"stage: unpacked", afterUpdate},
	{"stage: a folder is in its place", afterUpdate},
	{"stage: renamed", afterUpdate},
	{"commit of stage: before", afterUpdate},
	{"commit of stage: after", afterUpdate},
	{"commit of switchTo: before", afterUpdate},
	{"commit of switchTo: after", afterUpdate},
	{"commit of Write: before", afterUpdate},
	{"commit of Write: after", afterUpdate},
	{"commit of Save: before", afterUpdate},
	{"commit of Save: after", afterUpdate},
	{"engine: apply", afterUpdate},
	{"engine: half applied", afterUpdate},
	{"engine: applied", afterUpdate},
	{"engine: failed", afterFailing},
	{"engine: observe", afterUpdate},
	{"engine: remove", afterRemoval},
	{"engine: half removed", afterRemoval},
	{"engine: removed", afterRemoval},
	{"commit of noteAttempt: before", afterUpdate},
	{"commit of noteAttempt: after", afterUpdate},
	{"commit of giveUp: before", afterGivingUp},
	{"commit of giveUp: after", afterGivingUp},
	{"commit of RollBack: before", afterOperator},
	{"commit of RollBack: after", afterOperator},
	{"commit of voidHold: before", afterVoid},
	{"commit of voidHold: after", afterVoid},
	{"commit of Pause: before", afterOperator},
	{"commit of Pause: after", afterOperator},
	{"commit of Resume: before", afterOperator},
	{"commit of Resume: after", afterOperator},
	{"commit of conclude: before", afterUpdate},
	{"commit of conclude: after", afterUpdate},
	{"commit of report: before", afterUpdate},
	{"commit of report: after", afterUpdate},
	{"prune: a folder is gone", afterUpdate},
	{"prune: a blob is gone", afterUpdate},
	{"commit of forgetTrees: before", afterUpdate},
	{"commit of forgetTrees: after", afterUpdate},
	{"send: before", afterUpdate},
	{"hub: before it stores", afterUpdate},
	{"hub: stored, not answered", afterUpdate},
	{"send: answered", afterUpdate},
	{"commit of settle: before", afterUpdate},
	{"commit of settle: after", afterUpdate},
	{tornPage, ""},
	{powerCut, ""},
}

// Points of the layer under the state file.
const (
	tornPage = "disk: a page is half written"
	powerCut = "disk: power cut"
)

// elsewhere are commits at which no agent is killed here, with the tests that end a process there.
var elsewhere = map[string]string{
	"prepare": "TestARotationLosesNoReportWhereverItIsCut",
	"Hear":    "TestARotationLosesNoReportWhereverItIsCut",
	// One commit each, with nothing before or after it that another part has to agree with.
	"noteOlderMedium": "TestAnOlderMediumIsReportedAndChangesNothing",
	"relearnFrom":     "TestAnAgentWhoseStateWasMovedAwayTakesNothingOlderThanItsStore",
	"OpenState":       "TestAQueueOfAnEarlierVersionIsCountedAndThinned",
	"EndRotation":     "TestWithoutAHubAPersonEndsARotation",
	"withdraw":        "TestARefusedTokenLeavesWhatWaited",
	"Bound":           "TestTheConfigurationHasTheLastWord",
	"Rebind":          "TestAnAgentIsBoundToAnotherStreamAndBack",
	"push":            "TestAPushThatACrashHasCutShortIsDoneOnce",
	"notePushed":      "TestAPushThatACrashHasCutShortIsDoneOnce",
	"sweep":           "TestAPushThatACrashHasCutShortIsDoneOnce",
	"changeRejected":  "TestDeadLettersAreBoundedAndNothingIsLostForIt",
	"useValues":       "TestADeathAmidValuesLeavesNothingHalf",
	// What they forget is of no use any more, and is forgotten by the next import or pass if they do not.
	"drop":   "TestDamageOfOneStreamLeavesTheOthers",
	"forget": "TestANewerPackageSupersedesWhatHasArrived",
	"Refuse": "TestATreeThatIsNotAsSignedIsForgotten",
	// What other agents have brought, and will bring again unless they were answered.
	"Take":        "TestARelayAnswersForWhatIsOnTheDiskAlone",
	"Acknowledge": "TestARelayAnswersForWhatIsOnTheDiskAlone",
	"Drop":        "TestARelayAnswersForWhatIsOnTheDiskAlone",
	// Steps for the agent's endpoint, which end a pass.
	"keepSignature":    "TestAReleaseIsCompletedWhereverItIsCut",
	"compressAgain":    "TestAReleaseIsCompletedWhereverItIsCut",
	"forgetSignatures": "TestAReleaseIsCompletedWhereverItIsCut",
	// Steps that repeat reads of the cluster's memory and Lease, which the process after a kill reads again.
	"signOn":        "TestAnAgentThatWasKilledGoesOnAtOnce",
	"take":          "TestAnAgentThatWasKilledGoesOnAtOnce",
	"noteSeen":      "TestSinglePassesWaitForASilentAgentTogether",
	"inherit":       "TestAMachineThatIsSetUpAnewForgetsNothing",
	"inheritAtOnce": "TestAnotherAgentsMemoryIsNewerThanFailedSaves",
	"saveNote":      "TestNothingIsAppliedThatTheMemoryDoesNotKnow",
}

// made are those that this harness makes out of another one: what a kill within one call of the system's leaves.
var made = map[string]string{
	"index: half of it":    "index: before",
	"stage: half unpacked": "stage: unpacked",
}

// pointsNamed returns all names, or the one.
func pointsNamed(only string) (names []string) {
	for _, p := range points {
		if only == "" || p.name == only {
			names = append(names, p.name)
		}
	}
	return names
}

// eventOf is what leads to a point.
func (w *realm) eventOf(name string) string {
	for _, p := range points {
		if p.name == name && p.after != "" {
			return p.after
		}
	}
	return everyday[w.random.IntN(len(everyday))]
}

// momentsInCode are the names that the agent gives to moments, and a pair for each commit. Package carry has a test of its own,
// TestAKilledTransferGoesOn.
func momentsInCode(t *testing.T) (names []string) {
	t.Helper()
	var files []string
	for _, dir := range []string{".", "assignments", "backup", "content", "engines", "enroll", "identity", "intake", "lease", "outbox", "probation", "state", "trust", "../bundle/oci"} {
		found, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		files = append(files, found...)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.Name == "Update" || f.Name.Name == "UpdateIf" || elsewhere[f.Name.Name] != "" {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if s, ok := call.Fun.(*ast.SelectorExpr); ok {
					switch {
					case s.Sel.Name == "Update", s.Sel.Name == "UpdateIf":
						names = append(names, "commit of "+f.Name.Name+": before", "commit of "+f.Name.Name+": after")
					case (s.Sel.Name == "at" || s.Sel.Name == "At") && len(call.Args) == 1 && literal(call.Args[0]) != "":
						names = append(names, literal(call.Args[0]))
					}
				}
				return true
			})
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestAgentsAreKilledAtEveryMomentThatTheCodeNames(t *testing.T) {
	inCode := append(momentsInCode(t), "fetch: some bytes")
	for _, name := range inCode {
		require.True(t, slices.ContainsFunc(points, func(p point) bool { return p.name == name }), "nobody is killed at %q: add it to points", name)
	}
	for _, p := range points {
		here := made[p.name] != "" || strings.HasPrefix(p.name, "engine: ") || strings.HasPrefix(p.name, "hub: ") || strings.HasPrefix(p.name, "disk: ")
		require.True(t, here || slices.Contains(inCode, p.name), "the code names no moment %q any more", p.name)
	}
}
