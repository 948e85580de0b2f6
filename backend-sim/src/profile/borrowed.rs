//! Which ops of a deployment are priced by tables that are not its engine's own.

use super::{Deployment, TableRef};

impl Deployment {
    /// Ops that are priced by the tables of another engine or version than this deployment's, one clause each with the
    /// reason that the profile gives; empty where all are its own. A version covers those that it begins: 0.24 has 0.24.0.
    #[must_use]
    pub fn borrowed(&self) -> Vec<String> {
        self.table_refs().filter(|(_, t)| !self.own(t)).map(|(op, t)| self.borrows(op, t)).collect()
    }

    /// Whether this engine's own tables are of another version.
    #[must_use]
    pub fn other_version(&self) -> bool {
        self.table_refs().any(|(_, t)| t.engine == self.engine && !self.own(t))
    }

    fn own(&self, table: &TableRef) -> bool {
        let covers = |a: &str, b: &str| b.strip_prefix(a).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let (a, b) = (&self.version, &table.version);
        table.engine == self.engine && (covers(a, b) || covers(b, a))
    }

    fn borrows(&self, op: &str, table: &TableRef) -> String {
        let why = self.sources.of(&format!("tables.{op}.version")).unwrap_or("no reason given");
        format!(
            "{op} of {} {}: priced by {} {} ({why})",
            self.engine.key(),
            self.version,
            table.engine.key(),
            table.version
        )
    }

    fn table_refs(&self) -> impl Iterator<Item = (&'static str, &TableRef)> {
        let t = &self.tables;
        let all = [
            ("moe", t.moe.as_ref()),
            ("allreduce", t.allreduce.as_ref()),
            ("attention", Some(&t.attention)),
            ("draft_attention", t.draft_attention.as_ref()),
            ("gemm", Some(&t.gemm)),
        ];
        all.into_iter().filter_map(|(op, table)| Some((op, table?)))
    }
}
