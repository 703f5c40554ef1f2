package config

import (
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// Stock says which stock Watermill outboxes run empties, and what becomes of their messages.
type Stock struct {
	Tables        []string // the topics that stock publishers write to
	ConsumerGroup string   // of the stock forwarder
	Topics        []string // <destination topic>=<topic>
	OrderingKey   string   // metadata entry
}

// Rules returns what becomes of the messages.
func (s Stock) Rules() schema.StockRules {
	r := schema.StockRules{OrderingKey: s.OrderingKey}
	for _, entry := range s.Topics {
		if r.Topics == nil {
			r.Topics = map[string]string{}
		}
		from, to, _ := cutLast(entry)
		r.Topics[from] = to
	}
	return r
}

// cutLast cuts an entry at its last '=', for a destination topic may have some and ours has none.
func cutLast(entry string) (from, to string, ok bool) {
	i := strings.LastIndexByte(entry, '=')
	if i < 0 {
		return entry, "", false
	}
	return strings.TrimSpace(entry[:i]), strings.TrimSpace(entry[i+1:]), true
}

func (c *Config) checkStock(bad func(key, format string, args ...any)) {
	s := c.Stock
	if len(s.Tables) == 0 {
		if s.ConsumerGroup != "" || s.OrderingKey != "" || len(s.Topics) > 0 {
			bad("stock.tables", "is empty, but other settings of stock are not; name the topics that stock publishers write to")
		}
		return
	}
	if c.Database.URL == "" {
		bad("stock.tables", "needs database.url: a stock outbox is read in PostgreSQL, in the database of ours")
	}
	tables := map[string]bool{}
	for _, t := range s.Tables {
		if tables[t] {
			bad("stock.tables", "%s is there twice", quote(t))
		}
		tables[t] = true
	}
	seen := map[string]bool{}
	for _, entry := range s.Topics {
		from, _, ok := cutLast(entry)
		switch {
		case !ok:
			bad("stock.topics", "%s is not <destination topic>=<topic>", quote(entry))
			return
		case seen[from]:
			bad("stock.topics", "%s is there twice", quote(from))
		}
		seen[from] = true
	}
	if err := s.Rules().Validate(); err != nil {
		bad("stock.topics", "%s", schema.OneLine(err.Error()))
	}
}
