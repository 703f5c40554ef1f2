package demo

import "math/rand/v2"

var customers = [...]string{"Ada", "Linus", "Grace", "Ken", "Barbara", "Dennis", "Margaret", "Edsger"}

// plan is what will happen, the same for the same seed.
type plan struct {
	orders   []Order
	failures map[int]int // order -> how often the mail server is busy for it
}

// makePlan thinks up n orders. The first ones have something of everything.
func makePlan(n int, seed uint64) plan {
	random := rand.New(rand.NewPCG(seed, 0))
	p := plan{failures: map[int]int{}}
	for i := range n {
		o := Order{
			Number:   1001 + i,
			Customer: customers[random.IntN(len(customers))],
			Cents:    500 + random.IntN(20000),
			Refused:  i == 2 || random.IntN(8) == 0 && i > 0,
			Archived: i == 0 || random.IntN(10) == 0,
		}
		if i == 1 || random.IntN(6) == 0 {
			p.failures[o.Number] = 1 + random.IntN(2)
		}
		p.orders = append(p.orders, o)
	}
	return p
}
