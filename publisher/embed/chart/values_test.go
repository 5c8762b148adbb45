package chart

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValuesAreComposed(t *testing.T) {
	values, err := ParseValues([]byte("a: {b: 1, c: 2}\nlist: [1]\n"))
	require.NoError(t, err)
	over, err := ParseValues([]byte("a: {c: null, d: 4}\nlist: [2]\n"))
	require.NoError(t, err)
	merged := MergeValues(values, over)
	require.Equal(t, map[string]any{"a": map[string]any{"b": 1.0, "c": nil, "d": 4.0}, "list": []any{2.0}}, merged)
	require.Equal(t, 2.0, values["a"].(map[string]any)["c"])
	require.NoError(t, SetValue(merged, "a.e[0].f", "7", false))
	require.NoError(t, SetValue(merged, "a.g", "7", true))
	require.Equal(t, []any{map[string]any{"f": int64(7)}}, merged["a"].(map[string]any)["e"])
	require.Equal(t, "7", merged["a"].(map[string]any)["g"])
	require.NoError(t, SetValue(merged, "hosts", "a,b,,c", false))
	require.Equal(t, "a,b,,c", merged["hosts"])
	require.NoError(t, SetValue(merged, "hosts", "{a,b}", false))
	require.Equal(t, []any{"a", "b"}, merged["hosts"])
	err = SetValue(merged, "a[x]", "hunter2", false)
	require.ErrorContains(t, err, "parameter a[x]")
	require.NotContains(t, err.Error(), "hunter2")
	_, err = ParseValues([]byte("- no map"))
	require.Error(t, err)
}
