"""Exact replay of acceptance: a sampled response is the truth that the tree must contain (sample-and-match)."""

import torch
import torch.nn.functional as F

RANKS = 64


@torch.no_grad()
def draft_ranks(drafter, embed, features, tokens, anchors, chunk: int = 64):
    """For one sequence: log-probabilities of the top ranks [A, K, RANKS] and the rank of the true token [A, K] (RANKS if beyond)."""
    depth, values, ranks = drafter.s.block - 1, [], []
    for part in anchors.split(chunk):
        x = drafter(embed, features.unsqueeze(0), part.unsqueeze(0), tokens[part].unsqueeze(0))[0]
        top = F.log_softmax(F.linear(x, embed).float(), -1).topk(RANKS, -1)
        goal = part.unsqueeze(1) + torch.arange(1, depth + 1, device=part.device)
        truth = torch.where(goal < len(tokens), tokens[goal.clamp(max=len(tokens) - 1)], -1)
        hit = top.indices == truth.unsqueeze(-1)
        values.append(top.values)
        ranks.append(torch.where(hit.any(-1), hit.int().argmax(-1), RANKS))
    return torch.cat(values), torch.cat(ranks)


def chain_accepted(ranks, nodes: int = 7):
    """Accepted drafts of the rank-0 chain, [A]."""
    return (ranks[:, :nodes] == 0).int().cumprod(1).sum(1)


def best_first_accepted(values, ranks, budget: int):
    """Accepted drafts of the `budget` most probable prefixes, [A]. They are prefix-closed, so a beam of that width finds them."""
    n, depth, width = values.shape
    width = min(width, budget)
    score, true = values.new_zeros(n, 1), torch.ones(n, 1, dtype=torch.bool, device=values.device)
    scores, flags, depths = [], [], []
    for d in range(depth):
        cand = (score.unsqueeze(-1) + values[:, d, None, :width]).flatten(1)
        flag = (true.unsqueeze(-1) & (torch.arange(width, device=values.device) == ranks[:, d, None, None])).flatten(1)
        score, pick = cand.topk(min(budget, cand.shape[1]), -1)
        true = flag.gather(1, pick)
        scores.append(score)
        flags.append(true)
        depths.append(torch.full_like(score, d + 1))
    score, flag, level = torch.cat(scores, 1), torch.cat(flags, 1), torch.cat(depths, 1)
    pick = score.topk(budget, -1).indices
    return (flag.gather(1, pick) * level.gather(1, pick)).amax(1).long()


def walk(accepted, tokens: int):
    """Steps to commit `tokens` tokens after the first root; `accepted[i]` drafts at a root on token i."""
    at, steps = 0, 0
    while at < tokens:
        at += int(accepted[at]) + 1
        steps += 1
    return steps
