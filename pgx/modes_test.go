package pgxfence_test

import (
	"github.com/jackc/pgx/v5"
)

// mode is one of pgx's five ways to send a query.
type mode struct {
	name string
	mode pgx.QueryExecMode
}

func (m mode) use(c *pgx.ConnConfig) { c.DefaultQueryExecMode = m.mode }

var modes = []mode{
	{"cache_statement", pgx.QueryExecModeCacheStatement},
	{"cache_describe", pgx.QueryExecModeCacheDescribe},
	{"describe_exec", pgx.QueryExecModeDescribeExec},
	{"exec", pgx.QueryExecModeExec},
	{"simple_protocol", pgx.QueryExecModeSimpleProtocol},
}
