package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Lists name lists, and each may name another ten times: a small file would become a memory full of items.
const (
	maxListItems = 1 << 16 // of one list, with those of the lists that it names
	maxListDepth = 64      // of lists in lists
	maxItems     = 1 << 20 // put into all checks of all files
)

// values gives the literals of a check with the names of lists put in.
func (c *compiler) values(k *checkExpr) []value {
	if !k.list {
		return k.vals
	}
	var out []value
	for _, v := range k.vals {
		l := c.lists[v.s]
		if !v.bare || l == nil {
			if v.bare && !k.inline {
				c.nearList(v)
			}
			out = append(out, v)
			continue
		}
		items := c.listItems(l, nil)
		before := c.items
		if c.items += len(items); c.items > maxItems {
			if before > maxItems { // it was said
				break
			}
			c.errorf(v.off, "the lists put more than %d items into the conditions up to here: that is too many", maxItems)
			break
		}
		for _, s := range items {
			out = append(out, value{s: s, off: v.off})
		}
	}
	if len(k.vals) == 1 && k.vals[0].bare && !k.inline && c.lists[k.vals[0].s] == nil && !c.written(k) {
		c.hint(k.vals[0].off, nearest(k.vals[0].s, keysOf(c.lists)), "there is no list %q", k.vals[0].s)
	}
	return out
}

// nearList warns of a word that is all but the name of a list, or is that of a macro: alone it is a value like any other.
// Names of lists have an underscore or are long; a short word is near to many.
func (c *compiler) nearList(v value) {
	if len(v.s) < 8 && !strings.Contains(v.s, "_") || len(v.s) < 5 {
		return
	}
	at := c.txt.mark(v.off)
	if c.macros[v.s] != nil {
		c.warn(at, c.rule, fmt.Sprintf("%q is a macro and no list, and stands for itself", v.s), "")
		return
	}
	for _, n := range slices.Sorted(maps.Keys(c.lists)) {
		if distance(v.s, n, 3) < 3 {
			c.warn(at, c.rule, fmt.Sprintf("%q is no list and stands for itself", v.s), fmt.Sprintf("did you mean %q?", n))
			return
		}
	}
}

// written tells whether the list of a check stands in parentheses; otherwise its one value is a list's name.
func (c *compiler) written(k *checkExpr) bool {
	off := k.vals[0].off
	s := strings.TrimRight(c.txt.s[:min(off, len(c.txt.s))], " \t\r\n\b")
	return strings.HasSuffix(s, "(")
}

// listItems gives the items of a list, with those of the lists that it names.
func (c *compiler) listItems(l *listDef, above []string) []string {
	if l.flat != nil {
		return l.flat
	}
	for _, a := range above {
		if a == l.name {
			c.report(l.at, "list "+l.name, "the list leads back to itself: "+strings.Join(append(above, l.name), " → "), "")
			return nil
		}
	}
	if len(above) >= maxListDepth {
		c.report(l.at, "list "+l.name, fmt.Sprintf("lists name one another more than %d deep", maxListDepth), "")
		return nil
	}
	flat := []string{}
	for _, it := range l.items {
		if sub := c.lists[it.s]; sub != nil && it.bare && it.s != l.name {
			flat = append(flat, c.listItems(sub, append(above, l.name))...)
		} else {
			flat = append(flat, it.s)
		}
		if len(flat) > maxListItems {
			c.report(l.at, "list "+l.name, fmt.Sprintf("the list has more than %d items, with those of the lists that it names", maxListItems), "")
			flat = flat[:maxListItems:maxListItems]
			break
		}
	}
	l.flat = flat // also below another: what is wrong with it was said, and nothing is loaded then
	return flat
}
