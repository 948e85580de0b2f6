//! Interpolation: along a line or over a batch × context plane, in logarithms, with what was measured kept apart from what was not.

/// One answer of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Looked {
    /// The time of one call on one GPU, in microseconds.
    pub us: f64,
    /// Whether the query lies inside what was measured. Outside, `us` is an extrapolation and the caller decides: an error
    /// unless the experiment allows it.
    pub inside: bool,
}

/// Positive points of increasing x with positive times; log-log between neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    x: Vec<f64>,
    ln_x: Vec<f64>,
    us: Vec<f64>,
    ln_us: Vec<f64>,
}

impl Line {
    /// A line through `(x, µs)`, x increasing. `None` without a point.
    pub(crate) fn new(points: &[(f64, f64)]) -> Option<Self> {
        if points.is_empty() {
            return None;
        }
        Some(Self {
            x: points.iter().map(|p| p.0).collect(),
            ln_x: points.iter().map(|p| p.0.ln()).collect(),
            us: points.iter().map(|p| p.1).collect(),
            ln_us: points.iter().map(|p| p.1.ln()).collect(),
        })
    }

    pub(crate) fn first(&self) -> f64 {
        self.x[0]
    }

    pub(crate) fn last(&self) -> f64 {
        self.x[self.x.len() - 1]
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.x.iter().copied().zip(self.us.iter().copied())
    }

    /// The time at x. Below the first point its time; above the last one affine through the last two points, never falling.
    pub(crate) fn at(&self, x: f64) -> Looked {
        let n = self.x.len();
        let upper = self.x.partition_point(|&p| p < x);
        if upper < n && self.x[upper] == x {
            return Looked { us: self.us[upper], inside: true };
        }
        if upper == 0 || x.is_nan() {
            return Looked { us: self.us[0], inside: false };
        }
        if upper == n {
            return Looked { us: self.beyond(x), inside: false };
        }
        let share = (x.ln() - self.ln_x[upper - 1]) / (self.ln_x[upper] - self.ln_x[upper - 1]);
        let ln = self.ln_us[upper - 1] + share * (self.ln_us[upper] - self.ln_us[upper - 1]);
        Looked { us: ln.exp(), inside: true }
    }

    fn beyond(&self, x: f64) -> f64 {
        let n = self.x.len();
        if n < 2 {
            return self.us[0];
        }
        let slope = (self.us[n - 1] - self.us[n - 2]) / (self.x[n - 1] - self.x[n - 2]);
        self.us[n - 1] + slope.max(0.0) * (x - self.x[n - 1])
    }
}

/// Times over batch × context. Decode tables are triangular: a large batch was not measured at a long context. Cells that were not
/// measured are filled so that every query has an answer, and remembered so that the answer is flagged.
#[derive(Clone, Debug)]
pub(crate) struct Plane {
    batch: Vec<f64>,
    context: Vec<f64>,
    ln_batch: Vec<f64>,
    ln_context: Vec<f64>,
    us: Vec<f64>,
    measured: Vec<bool>,
}

impl Plane {
    /// `rows[i]` holds the time at `batch[i]` for each context, `None` where not measured. `None` if no cell is measured in some row.
    pub(crate) fn new(batch: &[f64], context: &[f64], rows: &[Vec<Option<f64>>]) -> Option<Self> {
        let width = context.len();
        let mut us = Vec::with_capacity(batch.len() * width);
        let mut measured = Vec::with_capacity(batch.len() * width);
        for row in rows {
            let points: Vec<(f64, f64)> = context.iter().zip(row).filter_map(|(&x, us)| us.map(|us| (x, us))).collect();
            let line = Line::new(&points)?;
            us.extend(context.iter().map(|&x| line.at(x).us));
            measured.extend(row.iter().map(Option::is_some));
        }
        (!us.is_empty()).then(|| Self {
            ln_batch: batch.iter().map(|x| x.ln()).collect(),
            ln_context: context.iter().map(|x| x.ln()).collect(),
            batch: batch.to_vec(),
            context: context.to_vec(),
            us,
            measured,
        })
    }

    /// Batches and contexts.
    pub(crate) fn axes(&self) -> (&[f64], &[f64]) {
        (&self.batch, &self.context)
    }

    /// The measured cells as (batch, context, µs).
    pub(crate) fn cells(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let width = self.context.len();
        (0..self.us.len())
            .filter(|&i| self.measured[i])
            .map(move |i| (self.batch[i / width], self.context[i % width], self.us[i]))
    }

    /// Bilinear in logarithms inside the grid; beyond an edge the time grows in proportion to batch, or to context where
    /// the last two columns say how much.
    pub(crate) fn at(&self, batch: f64, context: f64) -> Looked {
        let (b0, b1, v, b_in) = locate(&self.batch, &self.ln_batch, batch);
        let (c0, c1, w, c_in) = locate(&self.context, &self.ln_context, context);
        let width = self.context.len();
        let corner = |b: usize, c: usize| (self.us[b * width + c].ln(), self.measured[b * width + c]);
        let (us00, m00) = corner(b0, c0);
        let (us01, m01) = corner(b0, c1);
        let (us10, m10) = corner(b1, c0);
        let (us11, m11) = corner(b1, c1);
        let ln = (1.0 - v) * ((1.0 - w) * us00 + w * us01) + v * ((1.0 - w) * us10 + w * us11);
        // A corner counts only if it has weight. Below the diagonal of the triangle three corners are enough.
        let needs = |weight: f64, measured: bool| weight == 0.0 || measured;
        let all = needs((1.0 - v) * (1.0 - w), m00)
            && needs((1.0 - v) * w, m01)
            && needs(v * (1.0 - w), m10)
            && (needs(v * w, m11) || v + w <= 1.0);
        let looked = Looked { us: ln.exp(), inside: all };
        if b_in && c_in {
            return looked;
        }
        let mut us = looked.us;
        if batch > self.batch[self.batch.len() - 1] {
            us *= batch / self.batch[self.batch.len() - 1];
        }
        if context > self.context[width - 1] && width > 1 {
            let (near, far) = (corner(b1, width - 2).0.exp(), corner(b1, width - 1).0.exp());
            let slope = (far - near).max(0.0) / (self.context[width - 1] - self.context[width - 2]);
            us *= (far + slope * (context - self.context[width - 1])) / far;
        }
        Looked { us, inside: false }
    }
}

/// The two neighbours of x, the share of the upper one, and whether x lies on the axis. Off the axis both are the edge.
pub(crate) fn locate(axis: &[f64], ln: &[f64], x: f64) -> (usize, usize, f64, bool) {
    let n = axis.len();
    let upper = axis.partition_point(|&p| p < x);
    if upper < n && axis[upper] == x {
        return (upper, upper, 0.0, true);
    }
    if upper == 0 || x.is_nan() {
        return (0, 0, 0.0, false);
    }
    if upper == n {
        return (n - 1, n - 1, 0.0, false);
    }
    let share = (x.ln() - ln[upper - 1]) / (ln[upper] - ln[upper - 1]);
    (upper - 1, upper, share, true)
}
