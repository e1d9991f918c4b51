package anchorsbench

import (
	"fmt"
	"strings"
	"time"
)

// Price is what a chain costs. The defaults are the paper's for its layer 2: 0.01 gwei per gas, 2,500 USD per ether. For
// layer 1 it names no price that its table could be run again with, and it leaves out what a layer 2 pays to publish its data:
// 20 gwei per gas and 1 gwei per blob gas are ours.
type Price struct {
	Ether float64 `json:"ether_usd"`
	L1    float64 `json:"l1_gwei"`
	L2    float64 `json:"l2_gwei"`
	// Data is what publishing a byte of a layer 2's transaction costs in a blob of layer 1, in gwei: one blob gas. As calldata it
	// costs 16 gas at L1.
	Data float64 `json:"l2_data_gwei_per_byte"`
	// Rate is events a second in a burst, Interval the shortest time between two anchors then.
	Rate     float64       `json:"burst_events_per_second"`
	Interval time.Duration `json:"burst_interval"`
}

// DefaultPrice is the paper's.
var DefaultPrice = Price{Ether: 2500, L1: 20, L2: 0.01, Data: 1, Rate: 1000, Interval: 12 * time.Second}

// Steady gas of one anchor, and the bytes of its signed transaction, as measured on anvil with Osaka's rules (TestGas of
// internal/anchor/evm holds them).
const (
	gasMapping, gasHead, gasSuper = 91_069, 29_939, 29_415
	txBytes                       = 215
	calldataGas                   = 16 // of a byte
	members                       = 100
	events                        = 100_000
)

// gasPaper is what the paper reckons with.
const gasPaper = 91_800

// Cost is a line of the cost table: what 100,000 events cost with epochs of a size, in USD.
type Cost struct {
	Epoch   int `json:"epoch"` // events: the window in which nothing is anchored
	Anchors int `json:"anchors"`
	// By design: the paper's figure, its contract as we measured it, head, super-root of 100 recorders.
	// L2 is without the fee for data, as the paper reckons, Blob and Calldata are with it.
	L1       [4]float64 `json:"l1_usd"`
	L2       [4]float64 `json:"l2_usd"`
	Blob     [4]float64 `json:"l2_with_blobs_usd"`
	Calldata [4]float64 `json:"l2_with_calldata_usd"`
	// Burst is the number of anchors where events come at the burst's rate and the newest head stands for all before, BurstL2
	// and BurstBlob what they cost.
	Burst     int        `json:"burst_anchors"`
	BurstL2   [4]float64 `json:"burst_l2_usd"`
	BurstBlob [4]float64 `json:"burst_l2_with_blobs_usd"`
}

func costs(p Price) []Cost {
	var out []Cost
	for _, epoch := range []int{10, 50, 100, 500, 1000} {
		c := Cost{Epoch: epoch, Anchors: events / epoch}
		c.Burst = min(c.Anchors, int(events/p.Rate/p.Interval.Seconds())+1)
		for i, gas := range []float64{gasPaper, gasMapping, gasHead, gasSuper / members} {
			bytes := float64(txBytes)
			if i == 3 {
				bytes /= members
			}
			usd := func(anchors int, gwei float64) float64 { return float64(anchors) * gwei * 1e-9 * p.Ether }
			c.L1[i] = usd(c.Anchors, gas*p.L1)
			c.L2[i], c.BurstL2[i] = usd(c.Anchors, gas*p.L2), usd(c.Burst, gas*p.L2)
			c.Blob[i], c.BurstBlob[i] = usd(c.Anchors, gas*p.L2+bytes*p.Data), usd(c.Burst, gas*p.L2+bytes*p.Data)
			c.Calldata[i] = usd(c.Anchors, gas*p.L2+bytes*calldataGas*p.L1)
		}
		out = append(out, c)
	}
	return out
}

// Text is the result as Markdown tables.
func (r *Result) Text() string {
	var b strings.Builder
	b.WriteString("| | time to commitment: median, worst | bytes of a proof | " + strings.Join(Attacks, " | ") + " | second histories refused |\n|---|---|---|" + strings.Repeat("---|", len(Attacks)+1) + "\n")
	for _, k := range r.Rows {
		if k.Skipped != "" {
			fmt.Fprintf(&b, "| %s | not measured: %s |%s\n", k.Mechanism, k.Skipped, strings.Repeat(" |", len(Attacks)+2))
			continue
		}
		latency, size, refused := "–", "–", "–"
		if k.Bytes > 0 {
			latency = fmt.Sprintf("%s, %s", round(k.Median), round(k.Worst))
			size, refused = fmt.Sprint(k.Bytes), fmt.Sprintf("%d of %d", k.Refused, len(Attacks))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", k.Mechanism, latency, size)
		for _, a := range Attacks {
			b.WriteString(map[bool]string{true: " found |", false: " **no** |"}[k.Caught[a]])
		}
		fmt.Fprintf(&b, " %s |\n", refused)
	}
	b.WriteString("\n| | must be agreed before | survives the operator | what a compromised operator can still do |\n|---|---|---|---|\n")
	for _, k := range r.Rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", k.Mechanism, k.Prior, k.Survives, k.Left)
	}
	p := r.Price
	fmt.Fprintf(&b, "\nUSD per 100,000 events at %g USD per ether, %g gwei (L1) and %g gwei (L2) per gas; a byte that layer 2 publishes costs %g gwei in a blob, or %d gas of L1 as calldata; bursts of %g events/s, an anchor at most every %v. Each: the paper's figure, its contract as measured, head, super-root of %d:\n\n",
		p.Ether, p.L1, p.L2, p.Data, calldataGas, p.Rate, p.Interval, members)
	b.WriteString("| epoch (window) | anchors | L1 | L2 | L2 with data in blobs | L2 with data as calldata | in a burst: anchors | L2 | with data in blobs |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range r.Costs {
		fmt.Fprintf(&b, "| %d | %d | %s | %s | %s | %s | %d | %s | %s |\n", c.Epoch, c.Anchors, usd(c.L1), usd(c.L2), usd(c.Blob), usd(c.Calldata), c.Burst, usd(c.BurstL2), usd(c.BurstBlob))
	}
	return b.String()
}

func usd(list [4]float64) string {
	var out []string
	for _, v := range list {
		form := "%.4g"
		if v >= 10_000 {
			form = "%.0f"
		}
		out = append(out, fmt.Sprintf(form, v))
	}
	return strings.Join(out, ", ")
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
