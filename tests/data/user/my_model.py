from torch import nn


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(2 * width * 4 * 4, 10)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def build(width: int = 16) -> nn.Module:
    return Net(width)
