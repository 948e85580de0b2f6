//! The profiles that a deployment names, looked up and joined.

use crate::config::{DeploymentSpec, TierName};
use std::path::Path;
use treeline_sim::cost::{Calibration, CostError, CostModel, CostSetup, OpScales, Tier};
use treeline_sim::experts::{self, Experts};
use treeline_sim::memory::{self, DoesNotFit, Room};
use treeline_sim::optable::OpTables;
use treeline_sim::profile::{self, Deployment, Drafter, DrafterKind, Hardware, Model, Sources};

/// What is wrong with a named thing, and under which key of the experiment it is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Dotted path of the key.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What to change.
    pub hint: Option<String>,
}

impl Problem {
    /// The first line of an error is the message; a line that begins with `help:` is the hint.
    pub(crate) fn new(key: &str, error: &dyn std::fmt::Display) -> Self {
        let text = error.to_string();
        let (mut message, mut hint) = (Vec::new(), None);
        for line in text.lines().map(str::trim) {
            match line.strip_prefix("help:") {
                Some(help) => hint = Some(help.trim().to_owned()),
                None => message.push(line),
            }
        }
        Self { key: key.to_owned(), message: message.join(" "), hint }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`: {}", self.key, self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhelp: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// The profiles of one deployment, which fit together.
#[derive(Debug, Clone)]
pub struct Profiles {
    /// The GPUs.
    pub hardware: Hardware,
    /// The target.
    pub model: Model,
    /// Who drafts.
    pub drafter: Drafter,
    /// How an engine serves them.
    pub deployment: Deployment,
    /// How distinct experts are counted, with the sources of its figures; `None` for a dense target.
    pub experts: Option<(Experts, Sources)>,
    /// The file of tier `calibrated`.
    pub calibration: Option<Calibration>,
    /// How it is priced.
    pub spec: DeploymentSpec,
}

impl Profiles {
    /// Looks up what `spec` names; relative paths start from `folder`.
    ///
    /// # Errors
    /// A name that does not ship, a file that is wrong, or profiles that contradict each other.
    pub fn load(spec: &DeploymentSpec, folder: &Path) -> Result<Self, Problem> {
        let at = |key: &'static str| move |e: profile::ProfileError| Problem::new(&format!("deployment.{key}"), &e);
        let mut deployment = profile::deployment(&spec.engine, folder).map_err(at("engine"))?;
        // A path in a deployment's file starts from that file.
        let file = folder.join(&spec.engine);
        let beside = if profile::is_path(&spec.engine) { file.parent().unwrap_or(folder) } else { folder };
        let written = || profile::hardware(&deployment.hardware, beside).map_err(at("engine"));
        let hardware = match &spec.hardware {
            Some(name) => profile::hardware(name, folder).map_err(at("hardware"))?,
            None => written()?,
        };
        if profile::is_path(&deployment.hardware) {
            deployment.hardware = if spec.hardware.is_some() { written()?.name } else { hardware.name.clone() };
        }
        let model = profile::model(&spec.model, folder).map_err(at("model"))?;
        let drafter = profile::drafter(&spec.drafter, folder).map_err(at("drafter"))?;
        deployment.check(&hardware, &model).map_err(at("engine"))?;
        drafter.check_model(&model).map_err(at("drafter"))?;
        let experts = spec.experts.as_ref().map(|name| experts::experts(name, folder)).transpose();
        let experts = experts.map_err(at("experts"))?;
        match (&experts, &model.moe) {
            (None, Some(moe)) => {
                return Err(Problem {
                    key: "deployment.experts".to_owned(),
                    message: format!(
                        "{} has {} routed experts, and nothing says how many of them rows touch",
                        model.name, moe.experts
                    ),
                    hint: Some(format!("experts = \"NAME\", one of {}", experts::shipped().join(", "))),
                });
            }
            (Some(_), None) => {
                return Err(Problem {
                    key: "deployment.experts".to_owned(),
                    message: format!("{} is dense: it routes nothing", model.name),
                    hint: Some("leave `experts` out".to_owned()),
                });
            }
            (Some((experts, _)), Some(moe)) => {
                experts.check(moe.experts, moe.top_k).map_err(|e| Problem::new("deployment.experts", &e))?;
            }
            (None, None) => {}
        }
        let calibration = spec.calibration.as_ref().map(|c| read_calibration(&c.path)).transpose()?;
        Ok(Self { hardware, model, drafter, deployment, experts, calibration, spec: spec.clone() })
    }

    /// The cost model of the spec's tier.
    ///
    /// # Errors
    /// A missing table, contradictory profiles: the problem is the deployment's.
    pub fn cost(&self) -> Result<CostModel, CostError> {
        self.cost_with(self.tier(), OpScales::default(), self.experts.as_ref().map(|e| e.0.clone()))
    }

    /// The same with another tier, factors on op times, or count of experts.
    ///
    /// # Errors
    /// As [`Profiles::cost`].
    pub fn cost_with(&self, tier: Tier, scales: OpScales, experts: Option<Experts>) -> Result<CostModel, CostError> {
        CostModel::new(&CostSetup {
            hardware: &self.hardware,
            model: &self.model,
            drafter: Some(&self.drafter),
            deployment: &self.deployment,
            tier,
            overhead_scale: if tier == Tier::Table { self.spec.overhead_scale } else { 1.0 },
            allow_extrapolation: self.spec.allow_extrapolation,
            experts,
            tables: OpTables::shipped(),
            calibration: self.calibration.as_ref(),
            scales,
        })
    }

    /// The tier of the spec.
    #[must_use]
    pub fn tier(&self) -> Tier {
        match self.spec.tier {
            TierName::Bound => Tier::Bound,
            TierName::Table => Tier::Table,
            TierName::Calibrated => Tier::Calibrated,
        }
    }

    /// What the weights leave for the cache.
    ///
    /// # Errors
    /// The weights alone do not fit.
    pub fn room(&self) -> Result<Room, DoesNotFit> {
        memory::room(&self.model, Some(&self.drafter), &self.deployment, &self.hardware)
    }

    /// Rows of one request's draft pass: the block of a block drafter, 1 for a drafter that goes step by step.
    #[must_use]
    pub fn draft_rows(&self) -> u32 {
        match self.drafter.kind {
            DrafterKind::Dflash { block } => block,
            DrafterKind::Eagle { .. } => 1,
        }
    }

    /// The GPUs in words, but for their number.
    #[must_use]
    pub fn machine(&self) -> String {
        let d = &self.deployment;
        let alone = if d.ranks > 1 && !d.communicates() { " (one rank alone, no communication)" } else { "" };
        format!("{}{alone}", self.hardware.name)
    }

    /// The deployment in words.
    #[must_use]
    pub fn words(&self) -> String {
        let d = &self.deployment;
        format!(
            "{} with {} on {} × {}, {} {}",
            self.model.name,
            self.drafter.name,
            d.ranks,
            self.machine(),
            d.engine.key(),
            d.version
        )
    }
}

/// The most bytes of a calibration file.
const CALIBRATION_MAX: u64 = 64 << 20;

fn read_calibration(path: &Path) -> Result<Calibration, Problem> {
    let key = "deployment.calibration";
    let text = treeline_sim::text::read(path, CALIBRATION_MAX).map_err(|e| Problem {
        key: key.to_owned(),
        message: format!("cannot read calibration {}: {e}", path.display()),
        hint: Some(
            "relative paths start from the experiment file's folder; `treeline calibrate EXPERIMENT -o FILE` writes one".into(),
        ),
    })?;
    Calibration::from_json(&text, &path.display().to_string()).map_err(|e| Problem::new(key, &e))
}
