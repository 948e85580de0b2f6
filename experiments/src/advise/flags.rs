//! An experiment from flags: they become the text of an experiment file, so that whatever is wrong with them is found by
//! the same checks and said in the same words.

use std::fmt::Write as _;

/// What the command line says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Flags {
    /// Deployment profile.
    pub deployment: String,
    /// Hardware profile, in place of the deployment's.
    pub hardware: Option<String>,
    /// Model profile.
    pub model: String,
    /// Drafter profile.
    pub drafter: String,
    /// bound, table or calibrated.
    pub tier: String,
    /// The file of tier calibrated.
    pub calibration: Option<String>,
    /// Model of distinct experts; none for a dense target.
    pub experts: Option<String>,
    /// A trace.
    pub trace: Option<String>,
    /// Or a process.
    pub process: Option<String>,
    /// The τ that it is scaled to.
    pub tau: Option<f64>,
    /// Requests at once.
    pub concurrency: Vec<u32>,
    /// Positions per request; empty = as the trace has them.
    pub context: Vec<u32>,
    /// Tokens of a response that a process generates.
    pub response: u32,
    /// Requests that a process generates.
    pub requests: u32,
    /// The most nodes that are compared.
    pub most: u32,
    /// Whether queries outside a table's domain are answered.
    pub extrapolate: bool,
    /// Seed of what a process generates.
    pub seed: u64,
}

/// Budgets of trees that are compared, up to the most.
const BUDGETS: [u32; 14] = [2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64];

/// Levels of chains that are compared: what drafters of today reach. Longer ones than the drafter's add nothing.
const LEVELS: u32 = 7;

impl Flags {
    /// The experiment file.
    #[must_use]
    pub fn toml(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let mut key = |name: &str, value: &str| {
            let _ = writeln!(out, "{name} = {value}");
        };
        key("name", "\"advice\"");
        key("seed", &self.seed.to_string());
        key("record", "\"summary\"");
        key("\n[backend]\nkind", "\"sim\"");
        key("\n[deployment]\nengine", &quoted(&self.deployment));
        if let Some(hardware) = &self.hardware {
            key("hardware", &quoted(hardware));
        }
        key("model", &quoted(&self.model));
        key("drafter", &quoted(&self.drafter));
        key("tier", &quoted(&self.tier));
        if let Some(calibration) = &self.calibration {
            key("calibration", &quoted(calibration));
        }
        if let Some(experts) = &self.experts {
            key("experts", &quoted(experts));
        }
        key("allow_extrapolation", &self.extrapolate.to_string());
        key("prefill", "\"excluded\"");
        key("\n[workload]\nconcurrency", &format!("{:?}", self.concurrency));
        if !self.context.is_empty() {
            key("context", &format!("{:?}", self.context));
        }
        if self.process.is_some() {
            key("response", &self.response.to_string());
            key("requests", &self.requests.to_string());
        }
        let source = self.trace.as_deref().or(self.process.as_deref()).unwrap_or_default();
        let stem = source.rsplit('/').next().unwrap_or_default();
        let name = self.tau.map_or_else(|| stem.to_owned(), |tau| format!("{stem} τ {tau}"));
        key("\n[[acceptance]]\nname", &quoted(&name));
        if let Some(trace) = &self.trace {
            key("trace", &quoted(trace));
        }
        if let Some(process) = &self.process {
            key("process", &quoted(process));
        }
        if let Some(tau) = self.tau {
            key("tau", &tau.to_string());
        }
        let budgets: Vec<u32> = BUDGETS.into_iter().filter(|b| *b <= self.most).collect();
        let chains: Vec<u32> = (1..=LEVELS.min(self.most.max(1))).collect();
        key("\n[[policy]]\nkind", "\"chain\"");
        key("budget", &format!("{chains:?}"));
        if !budgets.is_empty() {
            key("\n[[policy]]\nkind", "\"best-first\"");
            key("budget", &format!("{budgets:?}"));
            key("\n[[policy]]\nkind", "\"batch-wide\"");
            key("budget", &format!("[{}]", self.most));
            key("calibration", "\"claimed\"");
            key("off", "false");
        }
        out
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_a_file() {
        let flags = Flags {
            deployment: "a \"quoted\" name".to_owned(),
            tier: "table".to_owned(),
            process: Some("folder/p.toml".to_owned()),
            tau: Some(4.5),
            concurrency: vec![1, 8],
            context: vec![4096],
            most: 8,
            ..Flags::default()
        };
        let text = flags.toml();
        let value: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(value["deployment"]["engine"].as_str(), Some("a \"quoted\" name"));
        assert_eq!(value["acceptance"][0]["name"].as_str(), Some("p.toml τ 4.5"));
        let budgets = |i: usize| value["policy"][i]["budget"].as_array().unwrap().len();
        assert_eq!((budgets(0), budgets(1), budgets(2)), (7, 5, 1), "{text}");
    }
}
