package judge

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Evaluation is how a judge does on labelled data.
type Evaluation struct {
	Judge string `json:"judge"`
	N     int    `json:"n"`
	// Accuracy and Kappa (Cohen's) are over the lines that the judge didn't abstain on, against the labels as they are.
	Accuracy float64 `json:"accuracy"`
	Kappa    float64 `json:"kappa"`
	// KappaAll takes an abstention for a label of its own, which is always wrong.
	KappaAll float64 `json:"kappa_with_abstentions"`
	// Right is the share of each label's decided lines on which in scope is told from not in scope (near and out are the
	// same here), or the share of a reply's label that is found.
	Right       map[string]float64        `json:"right"`
	Abstained   map[string]float64        `json:"abstained"` // share of each label's lines; "all" of all lines
	AUROCOut    *float64                  `json:"auroc_out,omitempty"`
	AUROCNear   *float64                  `json:"auroc_near,omitempty"`
	PerDecl     map[string]DeclEvaluation `json:"declarations,omitempty"`
	Confusion   map[string]map[string]int `json:"confusion"` // label, then verdict
	Calibration []CalibrationBin          `json:"calibration"`
	ECE         float64                   `json:"expected_calibration_error"`
	Rates       map[string]ErrorRates     `json:"error_rates"` // by label: the label against all others
	Errors      int                       `json:"errors"`      // lines without a verdict, because the judge failed
	FirstError  string                    `json:"first_error,omitempty"`
	Correction  string                    `json:"correction"`          // "uncorrected", or what the shares below were corrected with
	Shares      map[string]Share          `json:"shares"`              // of each verdict among the decided lines
	Disagreed   *float64                  `json:"disagreed,omitempty"` // of a panel: share of lines on which its judges said different things
}

// DeclEvaluation is how a judge does on one declaration.
type DeclEvaluation struct {
	N         int     `json:"n"`
	Accuracy  float64 `json:"accuracy"`
	Abstained float64 `json:"abstained"`
	AUROCOut  float64 `json:"auroc_out"`
	AUROCNear float64 `json:"auroc_near"`
}

// CalibrationBin holds the lines whose verdict (in scope or not; a reply's class) was given a probability in a range.
type CalibrationBin struct {
	From      float64 `json:"from"`
	To        float64 `json:"to"`
	N         int     `json:"n"`
	Predicted float64 `json:"predicted"` // mean probability
	Observed  float64 `json:"observed"`  // share that was so
}

// ErrorRates are what a correction needs to know of a judge.
type ErrorRates struct {
	Sensitivity float64 `json:"sensitivity"` // share of the label's lines given this label
	Specificity float64 `json:"specificity"` // share of the other lines given another
	N           int     `json:"n"`           // of the label
	Others      int     `json:"others"`
}

// Share is how often a verdict was given, and how often it should have been, where a correction is known.
type Share struct {
	Raw       float64  `json:"raw"`
	Corrected *float64 `json:"corrected,omitempty"`
}

// Correct is Rogan and Gladen's estimate of a true share from an observed one: (p + spec − 1) / (sens + spec − 1), kept
// within 0 and 1. It reports false where the judge is no better than chance, and nothing can be corrected.
func Correct(observed float64, r ErrorRates) (float64, bool) {
	power := r.Sensitivity + r.Specificity - 1
	if power <= .05 || r.N == 0 || r.Others == 0 {
		return observed, false
	}
	return min(1, max(0, (observed+r.Specificity-1)/power)), true
}

// outcome is one line with its verdict.
type outcome struct {
	decl, label, verdict string
	in                   float64 // probability of being in scope, of scope lines
	sure                 float64 // probability that calibration is about
	right                bool    // whether that came true
	votes                []Vote  // of a panel
}

// Evaluate runs a judge over labelled lines. Lines on which it fails are counted as errors and in nothing else; it returns
// an error only where ctx ends or no line got a verdict. progress is called after each line, if it isn't nil.
func Evaluate(ctx context.Context, j Judge, lines []Labelled, progress func(done, all int)) (*Evaluation, error) {
	decls := map[string]Declaration{}
	var outcomes []outcome
	e := &Evaluation{Judge: j.Name(), Correction: "uncorrected"}
	for i, l := range lines {
		if progress != nil {
			progress(i, len(lines))
		}
		if l.Declaration != nil {
			decls[l.DeclarationID] = *l.Declaration
		}
		if l.Label == "" {
			continue
		}
		e.N++
		var d *Declaration
		if found, ok := decls[l.DeclarationID]; ok {
			d = &found
		}
		o, err := decide(ctx, j, d, l)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			if e.Errors++; e.Errors == 1 {
				e.FirstError = err.Error()
			}
			continue
		}
		outcomes = append(outcomes, o)
	}
	if len(outcomes) == 0 {
		if e.Errors > 0 {
			return nil, fmt.Errorf("the judge failed on all of %d lines, first with: %s", e.Errors, e.FirstError)
		}
		return nil, fmt.Errorf("no line is labelled")
	}
	e.summarise(outcomes)
	return e, nil
}

func decide(ctx context.Context, j Judge, d *Declaration, l Labelled) (outcome, error) {
	o := outcome{decl: l.DeclarationID, label: l.Label}
	if l.Label == In || l.Label == Near || l.Label == Out {
		v, err := j.JudgeScope(ctx, *d, l.Prompt)
		if err != nil {
			return o, err
		}
		o.verdict, o.in, o.sure, o.right, o.votes = v.Label, v.In, v.In, l.Label == In, v.Votes
		return o, nil
	}
	v, err := j.JudgeReply(ctx, d, l.Prompt, l.Reply)
	if err != nil {
		return o, err
	}
	coarse := map[string]float64{}
	best := ""
	for _, c := range Classes {
		coarse[Coarse(c)] += v.Probabilities[c]
	}
	for _, c := range []string{Comply, Refuse, PartialRefusal} {
		if best == "" || coarse[c] > coarse[best] {
			best = c
		}
	}
	o.verdict, o.sure, o.right, o.votes = Coarse(v.Class), coarse[best], best == l.Label, v.Votes
	if o.verdict == "" {
		o.verdict = Abstain
	}
	return o, nil
}

func (e *Evaluation) summarise(all []outcome) {
	e.Confusion, e.Right, e.Abstained = map[string]map[string]int{}, map[string]float64{}, map[string]float64{}
	said := map[string]int{}
	decided, agree, split, panel := 0, 0, 0, false
	for _, o := range all {
		panel = panel || len(o.votes) > 0
		if disagree(o.votes) {
			split++
		}
		if e.Confusion[o.label] == nil {
			e.Confusion[o.label] = map[string]int{}
		}
		e.Confusion[o.label][o.verdict]++
		if o.verdict != Abstain {
			said[o.verdict]++
			decided++
			if o.verdict == o.label {
				agree++
			}
		}
	}
	if panel {
		share := ratio(split, len(all))
		e.Disagreed = &share
	}
	e.Accuracy = ratio(agree, decided)
	e.Kappa, e.KappaAll = kappa(e.Confusion, false), kappa(e.Confusion, true)
	e.Abstained["all"] = 1 - ratio(decided, len(all))
	for label, row := range e.Confusion {
		n, right := 0, 0
		for verdict, k := range row {
			n += k
			if verdict == label || label == Near && verdict == Out || label == Out && verdict == Near {
				right += k
			}
		}
		e.Right[label], e.Abstained[label] = ratio(right, n-row[Abstain]), ratio(row[Abstain], n)
	}
	e.rates()
	e.Shares = map[string]Share{}
	for verdict, n := range said {
		e.Shares[verdict] = Share{Raw: ratio(n, decided)}
	}
	e.calibrate(all)
	e.perDeclaration(all)
}

// disagree tells whether the judges of a panel said different things. An abstention says nothing.
func disagree(votes []Vote) bool {
	first := ""
	for _, v := range votes {
		switch {
		case v.Verdict == "" || v.Verdict == Abstain || v.Verdict == Abstains:
		case first == "":
			first = v.Verdict
		case v.Verdict != first:
			return true
		}
	}
	return false
}

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// rates fills in the error rates of each label among decided lines.
func (e *Evaluation) rates() {
	e.Rates = map[string]ErrorRates{}
	for label := range e.Confusion {
		var hit, n, reject, others int
		for other, row := range e.Confusion {
			for verdict, k := range row {
				switch {
				case verdict == Abstain:
				case other == label:
					n += k
					if verdict == label {
						hit += k
					}
				default:
					others += k
					if verdict != label {
						reject += k
					}
				}
			}
		}
		e.Rates[label] = ErrorRates{Sensitivity: ratio(hit, n), Specificity: ratio(reject, others), N: n, Others: others}
	}
}

// CorrectWith corrects the shares with error rates that were measured on other data, by the same judge.
func (e *Evaluation) CorrectWith(name string, measured *Evaluation) error {
	if measured.Judge != e.Judge {
		return fmt.Errorf("the error rates were measured for the judge %q, this one is %q", measured.Judge, e.Judge)
	}
	for verdict, s := range e.Shares {
		if v, ok := Correct(s.Raw, measured.Rates[verdict]); ok {
			s.Corrected = &v
			e.Shares[verdict] = s
			e.Correction = "Rogan–Gladen, error rates of " + name
		}
	}
	return nil
}

// kappa is Cohen's, over all lines or over the decided ones.
func kappa(confusion map[string]map[string]int, abstentions bool) float64 {
	rows, columns, agree, n := map[string]int{}, map[string]int{}, 0, 0
	for label, row := range confusion {
		for verdict, k := range row {
			if verdict == Abstain && !abstentions {
				continue
			}
			rows[label] += k
			columns[verdict] += k
			n += k
			if label == verdict {
				agree += k
			}
		}
	}
	var chance int
	for label, k := range rows {
		chance += k * columns[label]
	}
	if n == 0 || chance == n*n {
		return 0
	}
	expected := float64(chance) / float64(n) / float64(n)
	return (float64(agree)/float64(n) - expected) / (1 - expected)
}

func (e *Evaluation) calibrate(all []outcome) {
	const bins = 10
	table := make([]CalibrationBin, bins)
	for _, o := range all {
		b := &table[min(bins-1, int(o.sure*bins))]
		b.N++
		b.Predicted += o.sure
		if o.right {
			b.Observed++
		}
	}
	for i, b := range table {
		if b.N == 0 {
			continue
		}
		b.From, b.To = float64(i)/bins, float64(i+1)/bins
		b.Predicted, b.Observed = b.Predicted/float64(b.N), b.Observed/float64(b.N)
		e.Calibration = append(e.Calibration, b)
		e.ECE += math.Abs(b.Predicted-b.Observed) * float64(b.N) / float64(len(all))
	}
}

func (e *Evaluation) perDeclaration(all []outcome) {
	groups := map[string][]outcome{}
	var order []string
	for _, o := range all {
		if o.label != In && o.label != Near && o.label != Out {
			continue
		}
		if groups[o.decl] == nil {
			order = append(order, o.decl)
		}
		groups[o.decl] = append(groups[o.decl], o)
	}
	if len(order) == 0 {
		return
	}
	e.PerDecl = map[string]DeclEvaluation{}
	var out, near []float64
	for _, id := range order {
		g := groups[id]
		d := DeclEvaluation{N: len(g)}
		agree, decided := 0, 0
		for _, o := range g {
			if o.verdict != Abstain {
				decided++
				if o.verdict == o.label {
					agree++
				}
			}
		}
		d.Accuracy, d.Abstained = ratio(agree, decided), 1-ratio(decided, len(g))
		var ok bool
		if d.AUROCOut, ok = auroc(g, Out); ok {
			out = append(out, d.AUROCOut)
		}
		if d.AUROCNear, ok = auroc(g, Near); ok {
			near = append(near, d.AUROCNear)
		}
		e.PerDecl[id] = d
	}
	e.AUROCOut, e.AUROCNear = meanOf(out), meanOf(near)
}

func meanOf(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	m := mean(values)
	return &m
}

// auroc is the chance that a text in scope gets a higher probability than one labelled other; ties count half.
func auroc(g []outcome, other string) (float64, bool) {
	var in, not []float64
	for _, o := range g {
		switch o.label {
		case In:
			in = append(in, o.in)
		case other:
			not = append(not, o.in)
		}
	}
	if len(in) == 0 || len(not) == 0 {
		return 0, false
	}
	slices.Sort(not)
	var wins float64
	for _, v := range in {
		below, _ := slices.BinarySearch(not, v)
		upTo := below
		for upTo < len(not) && not[upTo] == v {
			upTo++
		}
		wins += float64(below) + float64(upTo-below)/2
	}
	return wins / float64(len(in)*len(not)), true
}
