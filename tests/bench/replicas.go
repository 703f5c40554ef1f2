package main

import "context"

// replicasScenario drains to three servers that each keep everything.
func replicasScenario() scenario {
	type do func(ctx context.Context, st *stage) (result, error)
	three := func(run do) do {
		return func(ctx context.Context, st *stage) (result, error) {
			if err := st.replicated(ctx); err != nil {
				return result{}, err
			}
			return run(ctx, st)
		}
	}
	ours := func(ctx context.Context, st *stage) (result, error) { return drainMillbridge(ctx, st, withOrder) }
	raw := func(ctx context.Context, st *stage) (result, error) { return drainRaw(ctx, st, st.publishAtomic) }
	return scenario{
		name: "replicas", title: "draining to three servers that each have a copy (R3), beside one (R1)", unit: "msg/s", base: "millbridge, R1",
		contenders: []contender{
			{"millbridge, R1", ours},
			{"millbridge, R3", three(ours)},
			{"stock forwarder, R3", three(drainStock)},
			{"raw: atomic batches, no database, R1", raw},
			{"raw: atomic batches, no database, R3", three(raw)},
		},
	}
}
