//! Expert models by name or file.
//!
//! ```toml
//! name = "mine"
//! kind = "correlated"            # uniform, skewed, power, shared, correlated, measured
//! [popularity]                   # none: even
//! kind = "zipf"                  # or "list" with `weights`
//! exponent = { value = 0.4, source = "…" }
//! [novelty]
//! chain = { value = 0.8, source = "…" }
//! # …
//! ```

use std::path::Path;

use super::fit::PointSet;
use super::{Curve, Distinct, Experts, ExpertsError, Novelty, Popularity};
use crate::profile::load::{Doc, Fields};
use crate::profile::{ProfileError, Sources, is_path, read_text};

/// Name and text of what ships, sorted.
const SHIPPED: &[(&str, &str)] = &[
    ("correlated-mini-pair", include_str!("../../profiles/experts/correlated-mini-pair.toml")),
    ("correlated-public-chains", include_str!("../../profiles/experts/correlated-public-chains.toml")),
    ("uniform", include_str!("../../profiles/experts/uniform.toml")),
];

/// Names of the expert models that ship, sorted.
#[must_use]
pub fn shipped() -> Vec<&'static str> {
    SHIPPED.iter().map(|s| s.0).collect()
}

/// An expert model by shipped name, or by path relative to `folder`, and the sources of its parameters.
///
/// # Errors
/// No such model, an unreadable file, a wrong key or parameter.
pub fn experts(name: &str, folder: &Path) -> Result<(Experts, Sources), ProfileError> {
    if let Some((name, text)) = SHIPPED.iter().find(|s| s.0 == name) {
        return read(text, &format!("shipped experts {name}"), folder);
    }
    if is_path(name) {
        let path = folder.join(name);
        return read(&read_text(&path)?, &path.display().to_string(), path.parent().unwrap_or(folder));
    }
    Err(ProfileError::Unknown {
        kind: "experts",
        name: name.to_owned(),
        known: shipped().into_iter().map(str::to_owned).collect(),
        hint: format!("for a file of your own write its path, `./{name}.toml`; docs/profiles.md says what it holds"),
    })
}

fn read(text: &str, file: &str, folder: &Path) -> Result<(Experts, Sources), ProfileError> {
    let doc = Doc::parse(text, file)?;
    let (f, mut sources) = (doc.root(), Sources::default());
    let s = &mut sources;
    f.text("name")?;
    let kind = f.text("kind")?;
    let popularity = f.table("popularity")?.map(|p| popularity(p, s)).transpose()?.unwrap_or(Popularity::Even);
    let experts = match kind.as_str() {
        "uniform" if popularity != Popularity::Even => {
            return Err(f.error("popularity", "belongs to the other kinds: a uniform router has none"));
        }
        "uniform" => Experts::Uniform,
        "skewed" => Experts::Skewed { popularity },
        "power" => Experts::Power { popularity, exponent: f.field("exponent", s)? },
        "shared" => Experts::Shared { popularity, rho: f.field("rho", s)? },
        "correlated" => Experts::Correlated { popularity, novelty: novelty(f.need("novelty")?, s)? },
        "measured" => measured(&f, popularity, folder, s)?,
        other => {
            let known = "uniform, skewed, power, shared, correlated and measured are";
            return Err(f.error("kind", format!("\"{other}\" is not known; {known}")));
        }
    };
    // A list has its own length; the model's is checked where the two meet.
    let total = if let Popularity::List(list) = experts.popularity() { list.len() as u32 } else { u32::MAX };
    experts.check(total, 1).map_err(|e| f.error(&e.key, e.problem))?;
    f.finish()?;
    Ok((experts, sources))
}

fn popularity(f: Fields<'_, '_>, s: &mut Sources) -> Result<Popularity, ProfileError> {
    let popularity = match f.text("kind")?.as_str() {
        "zipf" => Popularity::Zipf { exponent: f.amount("exponent", s)? },
        "list" => Popularity::List(f.field("weights", s)?),
        other => return Err(f.error("kind", format!("\"{other}\" is not known; \"zipf\" and \"list\" are"))),
    };
    f.finish()?;
    Ok(popularity)
}

fn novelty(f: Fields<'_, '_>, s: &mut Sources) -> Result<Novelty, ProfileError> {
    let novelty = Novelty {
        chain: f.field("chain", s)?,
        chain_decay: f.field("chain_decay", s)?,
        sibling: f.field("sibling", s)?,
        sibling_decay: f.field("sibling_decay", s)?,
        repeat: f.field("repeat", s)?,
        spine: f.size("spine", 4096, s)?,
    };
    f.finish()?;
    Ok(novelty)
}

/// `points = "FILE.csv"` beside the profile.
fn measured(
    f: &Fields<'_, '_>,
    popularity: Popularity,
    folder: &Path,
    s: &mut Sources,
) -> Result<Experts, ProfileError> {
    let name = f.text("points")?;
    let path = folder.join(&name);
    let wrong = |e: ExpertsError| f.error("points", format!("{}: {e}", path.display()));
    let set = PointSet::from_csv(&read_text(&path)?).map_err(wrong)?;
    popularity.check(set.total, set.top_k).map_err(wrong)?;
    let distinct = Distinct::new(&popularity, set.total, set.top_k);
    let curve = Curve::new(&set.points, &distinct).map_err(wrong)?;
    s.note("points".into(), name, set.source);
    Ok(Experts::Measured { popularity, curve })
}
