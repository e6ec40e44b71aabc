"""A graph network with MinCut pooling. Argument: ``v0``; ``v1`` to ``v3`` are the author's changes."""

import sys

import torch
from clock import SEED, Clock, chosen
from torch import nn

GRAPHS, NODES, FEATURES = 16, chosen([448, 512, 576], "nodes"), 64
CLUSTERS = chosen([144, 160, 176], "clusters")
BATCHES = 20  # an epoch
VERSION = int(sys.argv[1][1:])
DEVICE = torch.device("cuda")


def edges_of(clusters: int) -> torch.Tensor:
    """All pairs of clusters."""
    if VERSION >= 3:
        rows = torch.arange(clusters, device=DEVICE).repeat(clusters, 1)
        return torch.stack([rows.t().reshape(-1), rows.reshape(-1)])
    rows = torch.arange(clusters).repeat(clusters, 1)
    return torch.stack([rows.t().reshape(-1), rows.reshape(-1)]).to(DEVICE)  # <- cause


def owners_of(graph: int, clusters: int) -> torch.Tensor:
    """Which graph each cluster belongs to."""
    if VERSION >= 3:
        return torch.full((clusters,), graph, device=DEVICE)
    return torch.full((clusters,), graph).to(DEVICE)  # <- cause too


class Pooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.assign = nn.Linear(FEATURES, CLUSTERS)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor):
        s = torch.softmax(self.assign(x), dim=-1)
        pooled = s.transpose(1, 2) @ x
        coarse = s.transpose(1, 2) @ adjacency @ s
        edges, owners, weights = [], [], []
        for graph in range(x.shape[0]):
            pairs = edges_of(CLUSTERS)
            edges.append(pairs + graph * CLUSTERS)
            owners.append(owners_of(graph, CLUSTERS))
            weights.append(coarse[graph].reshape(-1))
        cut = -torch.einsum("bii->b", coarse).mean() / NODES
        return (
            pooled.reshape(-1, FEATURES),
            torch.cat(edges, 1),
            torch.cat(owners),
            torch.cat(weights),
            cut,
        )


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.pool, self.last = Pooling(), nn.Linear(FEATURES, 2)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor):
        x = torch.relu(adjacency @ self.first(x))
        x, edges, owners, weights, cut = self.pool(x, adjacency)
        messages = self.second(x)[edges[0]] * weights.unsqueeze(-1)
        x = torch.relu(torch.zeros_like(x).index_add(0, edges[1], messages))
        graphs = torch.zeros(GRAPHS, FEATURES, device=DEVICE).index_add(0, owners, x)
        return self.last(graphs), cut


def evaluate(model: nn.Module, batches: list) -> torch.Tensor:
    scores = []
    with torch.no_grad():
        for x, adjacency, _ in batches[:4]:
            out, _ = model(x, adjacency)
            scores.append(out if VERSION >= 1 else out.cpu())
    return torch.cat(scores).cpu()


def main() -> None:
    torch.manual_seed(SEED)
    model = Network().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    batches = [
        (
            torch.randn(GRAPHS, NODES, FEATURES, device=DEVICE),
            torch.rand(GRAPHS, NODES, NODES, device=DEVICE),
            torch.zeros(GRAPHS, dtype=torch.long, device=DEVICE),
        )
        for _ in range(BATCHES)
    ]
    clock = Clock()
    for epoch in range(10**6):
        total = 0.0
        for x, adjacency, y in batches:
            optimizer.zero_grad()
            out, cut = model(x, adjacency)
            loss = loss_of(out, y) + cut
            loss.backward()
            optimizer.step()
            if VERSION >= 2:
                total = total + loss.detach()
            else:
                total += loss.item()
            if clock.tick():
                torch.cuda.synchronize()
                clock.report()
                return
        evaluate(model, batches)
        print(f"epoch {epoch}: loss {float(total) / BATCHES:.4f}")


main()
