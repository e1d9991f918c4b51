package query

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A candidate set is the sorted numbers of the records that can hold what is asked for; all says that any can.
type candidates struct {
	all  bool
	seqs []uint64
}

func (c candidates) and(o candidates) candidates {
	if c.all {
		return o
	}
	if o.all {
		return c
	}
	var out []uint64
	for i, j := 0, 0; i < len(c.seqs) && j < len(o.seqs); {
		switch a, b := c.seqs[i], o.seqs[j]; {
		case a < b:
			i++
		case a > b:
			j++
		default:
			out = append(out, a)
			i, j = i+1, j+1
		}
	}
	return candidates{seqs: out}
}

func (c candidates) or(o candidates) candidates {
	if c.all || o.all {
		return candidates{all: true}
	}
	out := append(slices.Clone(c.seqs), o.seqs...)
	slices.Sort(out)
	return candidates{seqs: slices.Compact(out)}
}

// plan asks the index which records can match. What it can't tell, the ledger will.
func (x *index) plan(ctx context.Context, n node) (candidates, error) {
	switch n := n.(type) {
	case *group:
		out := candidates{all: n.all}
		for _, k := range n.of {
			c, err := x.plan(ctx, k)
			if err != nil {
				return out, err
			}
			if n.all {
				out = out.and(c)
			} else {
				out = out.or(c)
			}
		}
		return out, nil
	case *test:
		return x.test(ctx, n)
	}
	return candidates{all: true}, nil // the opposite of something may be anywhere
}

// column maps a field of the record to a column of its table.
var column = map[string]string{"type": "type", "kind": "kind", "seq": "seq", "epoch": "epoch", "wall": "wall", "group": "grp"}

func (x *index) test(ctx context.Context, t *test) (candidates, error) {
	all := candidates{all: true}
	if t.left.path == nil {
		return all, nil
	}
	for i := range t.right {
		if lit := t.right[i].lit; lit == nil || lit.kind == kindNull {
			return all, nil // null is what isn't there, which no index lists
		}
	}
	path := pathText(t.left.path)
	if unindexed(path) {
		return all, nil
	}
	switch t.op {
	case "==", "in":
		out := candidates{}
		for i := range t.right {
			c, err := x.equals(ctx, path, t.right[i].lit)
			if err != nil {
				return all, err
			}
			out = out.or(c)
		}
		return out, nil
	case "<", "<=", ">", ">=":
		return x.ordered(ctx, path, t.op, t.right[0].lit)
	}
	return all, nil
}

func (x *index) equals(ctx context.Context, path string, v *value) (candidates, error) {
	if name, ok := strings.CutPrefix(path, "record."); ok {
		col, ok := column[name]
		switch {
		case !ok:
			return candidates{all: true}, nil
		case v.kind == kindString:
			return x.seqs(ctx, "SELECT seq FROM record WHERE "+col+" = ?", v.str)
		case v.kind == kindNumber && v.whole:
			return x.seqs(ctx, "SELECT seq FROM record WHERE "+col+" = ?", v.i)
		}
		return candidates{all: true}, nil
	}
	if v.kind == kindNumber {
		return x.seqs(ctx, "SELECT seq FROM zone WHERE path = ? AND low <= ? AND high >= ?", path, v.f, v.f)
	}
	return x.seqs(ctx, "SELECT seq FROM posting WHERE term = (SELECT id FROM term WHERE path = ? AND value = ?) UNION SELECT seq FROM record WHERE dense", path, termText(v))
}

func (x *index) ordered(ctx context.Context, path, op string, v *value) (candidates, error) {
	if v.kind != kindNumber {
		return candidates{all: true}, nil
	}
	if name, ok := strings.CutPrefix(path, "record."); ok {
		col, ok := column[name]
		if !ok || col == "type" || col == "kind" || !v.whole {
			return candidates{all: true}, nil
		}
		return x.seqs(ctx, "SELECT seq FROM record WHERE "+col+" "+op+" ?", v.i)
	}
	// As numbers are rounded in the index, the border is let in.
	if op[0] == '<' {
		return x.seqs(ctx, "SELECT seq FROM zone WHERE path = ? AND low <= ?", path, v.f)
	}
	return x.seqs(ctx, "SELECT seq FROM zone WHERE path = ? AND high >= ?", path, v.f)
}

func (x *index) seqs(ctx context.Context, q string, args ...any) (candidates, error) {
	rows, err := x.db.QueryContext(ctx, q, args...)
	if err != nil {
		return candidates{}, fmt.Errorf("asking the index: %w", err)
	}
	defer rows.Close()
	var out []uint64
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return candidates{}, fmt.Errorf("asking the index: %w", err)
		}
		out = append(out, uint64(n))
	}
	slices.Sort(out)
	return candidates{seqs: out}, rows.Err()
}

// pathText is a path as the index knows it: without the elements of lists.
func pathText(path []step) string {
	var names []string
	for _, s := range path {
		if s.index < 0 {
			names = append(names, s.name)
		}
	}
	return strings.Join(names, ".")
}
