package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// StockTable names a stock Watermill outbox: the table that watermill-sql's publisher writes and the consumer group in
// which a components/forwarder reads it, both of the default PostgreSQL schema.
type StockTable struct {
	Topic string // ForwarderTopic of the stock publishers
	Group string // ConsumerGroup of the stock forwarder; its default is empty
	Rules schema.StockRules
}

// A Stock moves the messages of a stock Watermill outbox into ours. It is used by one goroutine; any number of processes
// may have one for the same table, also while stock publishers write and a stock forwarder reads.
type Stock struct {
	s    *Store
	t    StockTable
	name struct{ rows, offsets string } // of the tables, not quoted

	ready  bool
	afresh bool   // rows that were left have been forgotten
	lock   int64  // number of the advisory lock of the one who moves
	rows   string // quoted
	groups string
	body   string // the payload as bytes
	window window
	most   int // rows of a window
}

// stockNames is what watermill-sql takes for a topic.
var stockNames = regexp.MustCompile(`^[A-Za-z0-9$:._-]+$`)

// maxIdentifier is where PostgreSQL cuts names, for watermill-sql as for us.
const maxIdentifier = 63

// NewStock returns what moves the messages of a stock outbox in this database. It does no I/O.
func (s *Store) NewStock(t StockTable) (*Stock, error) {
	if !stockNames.MatchString(t.Topic) {
		return nil, fmt.Errorf("stock topic %q: must be letters, digits, '-', '_', '.', ':' and '$'", schema.OneLine(t.Topic))
	}
	if err := t.Rules.Validate(); err != nil {
		return nil, fmt.Errorf("stock topic %q: %w", t.Topic, err)
	}
	m := &Stock{s: s, t: t, most: stockWindow}
	m.name.rows, m.name.offsets = cutName("watermill_"+t.Topic), cutName("watermill_offsets_"+t.Topic)
	m.rows, m.groups = pgx.Identifier{m.name.rows}.Sanitize(), pgx.Identifier{m.name.offsets}.Sanitize()
	return m, nil
}

func cutName(name string) string { return name[:min(len(name), maxIdentifier)] }

// Name tells one feed from another in logs and status.
func (m *Stock) Name() string { return "stock outbox " + m.t.Topic }

// StockError says why the messages of a stock outbox cannot be moved, and what to do. It is [schema.Permanent]: somebody
// must do it.
type StockError struct{ Topic, Fault, Hint string }

func (e *StockError) Error() string { return e.Fault + "; " + e.Hint }

func (m *Stock) fault(hint, format string, args ...any) error {
	return schema.WithKind(schema.Permanent, &StockError{m.t.Topic, fmt.Sprintf(format, args...), hint})
}

const stockHint = "name the topic that the stock publishers are configured with (ForwarderTopic), and see that the tables are in the search_path of this connection"

// inspect finds the tables and checks that they are what we take them for. It changes nothing.
func (m *Stock) inspect(ctx context.Context) (offsets bool, err error) {
	var oid *uint32
	columns := map[string]string{}
	err = pgxRunner{m.s.pool}.run(ctx,
		statement{sql: `SELECT to_regclass($1::text)::oid, to_regclass($2::text) IS NOT NULL`, args: []any{m.rows, m.groups}, each: scan(&oid, &offsets)},
		statement{
			sql: `SELECT attname::text, format_type(atttypid, NULL) FROM pg_catalog.pg_attribute
				WHERE attrelid = to_regclass($1::text) AND attnum > 0 AND NOT attisdropped`, args: []any{m.rows},
			each: func(rows rowSet) error {
				var name, kind string
				err := rows.Scan(&name, &kind)
				columns[name] = kind
				return err
			},
		})
	switch {
	case err != nil:
		return false, m.s.failed("look at stock outbox", err)
	case oid == nil:
		return false, m.fault(stockHint, "there is no table %s", m.rows)
	}
	for _, name := range []string{"offset", "uuid", "created_at", "payload", "transaction_id"} {
		if columns[name] == "" {
			return false, m.fault(stockHint, "table %s has no column %q: it is not of watermill-sql's default PostgreSQL schema", m.rows, name)
		}
	}
	switch columns["payload"] {
	case "bytea":
		m.body = `m.payload`
	case "json", "jsonb", "text":
		m.body = `convert_to(m.payload::text, 'UTF8')`
	default:
		return false, m.fault(stockHint, "column payload of table %s is %s, must be json, jsonb, text or bytea", m.rows, columns["payload"])
	}
	m.lock = lockStock | int64(*oid)
	return offsets, nil
}

// A position is how far the stock forwarder has come.
type position struct {
	tx, offset int64
	ahead      bool // it names a transaction that does not exist yet
	others     []string
	found      bool
}

// sqlPosition reads the position of group $1 and the names of others.
func (m *Stock) sqlPosition() string {
	return `SELECT last_processed_transaction_id::text::bigint, coalesce(offset_acked, 0),
		last_processed_transaction_id >= pg_snapshot_xmax(pg_current_snapshot()),
		ARRAY(SELECT consumer_group::text FROM ` + m.groups + ` WHERE consumer_group <> $1::text ORDER BY 1 LIMIT 5)
		FROM ` + m.groups + ` WHERE consumer_group = $1::text`
}

func (p *position) scan(rows rowSet) error {
	p.found = true
	return rows.Scan(&p.tx, &p.offset, &p.ahead, &p.others)
}

// check says why messages cannot be told from those that the stock forwarder has sent.
func (m *Stock) check(p position) error {
	quoted := make([]string, len(p.others))
	for i, name := range p.others {
		quoted[i] = fmt.Sprintf("%q", schema.OneLine(name))
	}
	others := strings.Join(quoted, ", ")
	switch {
	case !p.found && len(p.others) > 0:
		return m.fault("name the group of the stock forwarder (stock.consumer_group)",
			"table %s knows no consumer group %q, but %s", m.groups, m.t.Group, others)
	case len(p.others) > 0:
		return m.fault("if they no longer read, delete their rows there",
			"other consumer groups read the table, too, and would miss what is moved: %s in %s", others, m.groups)
	case p.ahead:
		return m.fault("see docs/from-stock-watermill.md on dumps and restores",
			"the position of consumer group %q is that of another database server: transaction %d is yet to come", m.t.Group, p.tx)
	}
	return nil
}

// prepare finds the tables, gives the group a position if nobody has ever read, and forgets, once, which rows were left:
// they are looked at again, by the rules that hold now.
func (m *Stock) prepare(ctx context.Context) error {
	offsets, err := m.inspect(ctx)
	if err != nil {
		return err
	}
	if !offsets { // nobody has ever read. This is what a stock forwarder makes first, so that one that comes later is kept out.
		_, err := m.s.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS `+m.groups+` (consumer_group VARCHAR(255) NOT NULL, offset_acked BIGINT,
			last_processed_transaction_id xid8 NOT NULL, PRIMARY KEY (consumer_group))`)
		if err != nil {
			return m.s.failed("make the stock forwarder's table of offsets", err)
		}
	}
	p, err := m.position(ctx)
	if err == nil {
		err = m.check(p)
	}
	if err != nil {
		return err
	}
	if !p.found {
		_, err = m.s.pool.Exec(ctx, `INSERT INTO `+m.groups+` (consumer_group, offset_acked, last_processed_transaction_id)
			SELECT $1::text, 0, '0' WHERE NOT EXISTS (SELECT FROM `+m.groups+`) ON CONFLICT DO NOTHING`, m.t.Group)
		if err != nil {
			return m.s.failed("give the consumer group a position", err)
		}
	}
	if !m.afresh {
		if _, err := m.s.pool.Exec(ctx, `DELETE FROM millbridge.stock_left WHERE topic = $1::text`, m.t.Topic); err != nil {
			return m.s.failed("forget rows that were left", err)
		}
	}
	m.ready, m.afresh = true, true
	return nil
}

// position reads how far the stock forwarder has come.
func (m *Stock) position(ctx context.Context) (p position, err error) {
	err = pgxRunner{m.s.pool}.run(ctx, statement{sql: m.sqlPosition(), args: []any{m.t.Group}, each: p.scan})
	if err == nil && !p.found {
		err = pgxRunner{m.s.pool}.run(ctx, statement{
			sql: `SELECT consumer_group::text FROM ` + m.groups + ` ORDER BY 1 LIMIT 5`, each: func(rows rowSet) error {
				var name string
				err := rows.Scan(&name)
				p.others = append(p.others, name)
				return err
			},
		})
	}
	return p, m.s.failed("read the stock forwarder's position", err)
}

// State says what there is in the stock outbox, and what is wrong with it. It changes nothing.
func (m *Stock) State(ctx context.Context) (schema.StockState, error) {
	st := schema.StockState{Topic: m.t.Topic}
	offsets, err := m.inspect(ctx)
	if err != nil {
		return st, err
	}
	var p position
	if offsets {
		if p, err = m.position(ctx); err == nil {
			err = m.check(p)
		}
		if err != nil {
			return st, err
		}
	}
	var us int64
	err = pgxRunner{m.s.pool}.run(ctx,
		byIndex,
		statement{
			sql: `SELECT count(*), coalesce((extract(epoch FROM clock_timestamp() - min(m.created_at) FILTER (WHERE isfinite(m.created_at))::timestamptz) * 1000000)::bigint, 0)
				FROM ` + m.rows + ` AS m WHERE ` + m.sqlPending("$1", "$2", "$3"),
			args: []any{fmt.Sprint(p.tx), p.offset, m.t.Topic}, each: scan(&st.Rows, &us),
		},
		statement{
			sql: `SELECT m."offset", m.transaction_id::text::bigint, l.reason, count(*) OVER () FROM millbridge.stock_left AS l JOIN ` + m.rows + ` AS m USING (transaction_id, "offset")
				WHERE l.topic = $1::text ORDER BY l."offset" LIMIT 3`, args: []any{m.t.Topic},
			each: func(rows rowSet) error {
				var l schema.StockLeft
				var tx int64
				err := rows.Scan(&l.Offset, &tx, &l.Reason, &st.Left)
				l.Tx = uint64(tx)
				st.Sample = append(st.Sample, l)
				return err
			},
		})
	st.Oldest = max(0, time.Duration(us)*time.Microsecond)
	return st, m.s.failed("count the stock outbox", err)
}

// sqlPending selects rows that are neither behind the position nor known to hold nothing that can be sent.
func (m *Stock) sqlPending(tx, offset, topic string) string {
	return `(m.transaction_id, m."offset") > (` + tx + `::text::xid8, ` + offset + `::bigint)
		AND (NOT EXISTS (SELECT FROM millbridge.stock_left WHERE topic = ` + topic + `::text)
		     OR NOT EXISTS (SELECT FROM millbridge.stock_left AS l WHERE l.topic = ` + topic + `::text AND l."offset" = m."offset" AND l.transaction_id = m.transaction_id))`
}
