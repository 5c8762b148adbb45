package relational

import "strconv"

// selection is the WHERE clause of a query in the making, with its arguments.
type selection struct {
	conditions []string
	args       []any
}

// arg adds an argument, and returns its parameter.
func (q *selection) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

func (q *selection) and(condition string) { q.conditions = append(q.conditions, condition) }
