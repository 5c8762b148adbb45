package bundle

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

func TestReleaseReadsBackAsWritten(t *testing.T) {
	want := sampleRelease(Content{DiffID: digest.FromString("tree"), Size: 10, Files: 2})
	want.Rings = []string{"canary", "stable"}
	want.BaseCommit = "5523a85f37d12c0c7c10ab6616644db089fcd6f7"
	data, err := want.Marshal()
	require.NoError(t, err)
	got, err := ParseRelease(data)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, "s0-7", got.Tag())
}

func TestReleaseDocumentIsBounded(t *testing.T) {
	r := sampleRelease(Content{DiffID: digest.FromString("tree")})
	r.Rings = []string{strings.Repeat("r", MaxReleaseBytes)}
	_, err := r.Marshal()
	require.ErrorIs(t, err, ErrTooLarge)
	data, err := json.Marshal(r)
	require.NoError(t, err)
	_, err = ParseRelease(data)
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestParseReleaseRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Release)
	}{
		{"no platform", func(r *Release) { r.Platform = "" }},
		{"sequence zero", func(r *Release) { r.Sequence = 0 }},
		{"a negative epoch", func(r *Release) { r.Epoch = -1 }},
		{"no time of issue", func(r *Release) { r.IssuedAt = time.Time{} }},
		{"expiry before issue", func(r *Release) { r.ExpiresAt = r.IssuedAt.Add(-time.Second) }},
		{"no content", func(r *Release) { r.Content.DiffID = "" }},
		{"a tree beyond all bounds", func(r *Release) { r.Content.Size = MaxTreeBytes + 1 }},
		{"more files than allowed", func(r *Release) { r.Content.Files = MaxFiles + 1 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := sampleRelease(Content{DiffID: digest.FromString("tree")})
			tt.change(&r)
			data, err := json.Marshal(r)
			require.NoError(t, err)
			_, err = ParseRelease(data)
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal)
		})
	}
}

func TestExpectJudgesAVerifiedRelease(t *testing.T) {
	content := Content{DiffID: digest.FromString("tree")}
	self := digest.FromString("this manifest")
	base := sampleRelease(content)
	tests := []struct {
		name   string
		change func(*Release, *Expect)
		want   Reason // empty: accepted
	}{
		{"the first release of the stream", func(*Release, *Expect) {}, ""},
		{"a newer release", func(r *Release, e *Expect) { e.Highest = Order{Sequence: 6, Digest: digest.FromString("old")} }, ""},
		{"the release that runs, even when it has expired", func(r *Release, e *Expect) {
			e.Highest = OrderOf(*r, self)
			e.Now = r.ExpiresAt.Add(time.Hour)
		}, ""},
		{"an older sequence", func(r *Release, e *Expect) { e.Highest = Order{Sequence: 8, Digest: digest.FromString("new")} }, OlderRelease},
		{"the same sequence, issued before", func(r *Release, e *Expect) {
			e.Highest = Order{Sequence: 7, IssuedAt: r.IssuedAt.Add(time.Second), Digest: digest.FromString("other")}
		}, OlderRelease},
		{"another platform", func(r *Release, e *Expect) { r.Platform = "test" }, WrongPlatform},
		{"another environment", func(r *Release, e *Expect) { r.Environment = "prod" }, WrongEnvironment},
		{"another cluster type", func(r *Release, e *Expect) { r.ClusterType = "large" }, WrongClusterType},
		{"a ring that the agent is not in", func(r *Release, e *Expect) { r.Rings = []string{"canary"}; e.Ring = "stable" }, WrongRing},
		{"a ring, and the agent is in none", func(r *Release, e *Expect) { r.Rings = []string{"canary"} }, WrongRing},
		{"the agent's ring", func(r *Release, e *Expect) { r.Rings = []string{"canary", "stable"}; e.Ring = "stable" }, ""},
		{"all rings", func(r *Release, e *Expect) { e.Ring = "stable" }, ""},
		{"another epoch", func(r *Release, e *Expect) { e.Epoch = 1 }, OldEpoch},
		{"an expired release", func(r *Release, e *Expect) { e.Now = r.ExpiresAt }, Expired},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, e := base, Expect{Stream: base.Stream(), Now: base.IssuedAt}
			tt.change(&r, &e)
			err := e.Check(r, self)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tt.want, refusal.Reason)
		})
	}
}

func TestAgentStateIsTheFirstPresent(t *testing.T) {
	require.Equal(t, Compliant, AgentState(false, nil))
	require.Equal(t, Compliant, AgentState(false, []State{Compliant, Removed}))
	require.Equal(t, Failed, AgentState(false, []State{Compliant, Progressing, Failed, Drifted}))
	require.Equal(t, Progressing, AgentState(false, []State{Pending, Progressing, Compliant}))
	require.Equal(t, Rejected, AgentState(true, []State{Failed}))
}

func FuzzParseRelease(f *testing.F) {
	data, err := sampleRelease(Content{DiffID: digest.FromString("tree")}).Marshal()
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRelease(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		require.NoError(t, err)
		var back Release
		require.NoError(t, json.Unmarshal(again, &back))
		require.Equal(t, r.Tag(), back.Tag())
	})
}

func TestAMessageCommandsNoTerminal(t *testing.T) {
	require.Equal(t, "a?[31mb\n\tc?é", Clip("a\x1b[31mb\n\tc\u0085é"))
}
