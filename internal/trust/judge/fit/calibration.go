package main

import "fmt"

// said is a probability and whether what it was given to came true.
type said struct {
	p     float64
	truth bool
}

// reliability prints how often what was given a probability in each tenth came true.
func reliability(title string, all []said) {
	fmt.Printf("%s, calibration:\n", title)
	for bin := range 10 {
		n, sum, came := 0, 0.0, 0
		for _, s := range all {
			if min(9, int(s.p*10)) == bin {
				n++
				sum += s.p
				if s.truth {
					came++
				}
			}
		}
		if n > 0 {
			fmt.Printf("  %.1f–%.1f  %5d  said %.3f  was %.3f\n", float64(bin)/10, float64(bin+1)/10, n, sum/float64(n), float64(came)/float64(n))
		}
	}
}
