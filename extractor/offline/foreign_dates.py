"""Words of other languages for days and periods near the one on which they are said."""

import re
from typing import Final

_DAYS: Final = {
    "de": {"vorgestern": -2, "gestern": -1, "heute": 0, "übermorgen": 2},
    "es": {"anteayer": -2, "ayer": -1, "anoche": -1, "hoy": 0, "pasado mañana": 2},
    "fr": {"avant-hier": -2, "hier": -1, "aujourd'hui": 0, "après-demain": 2, "demain": 1},
    "it": {"l'altro ieri": -2, "ieri": -1, "oggi": 0, "dopodomani": 2, "domani": 1},
    "nl": {"eergisteren": -2, "gisteren": -1, "vandaag": 0, "overmorgen": 2},
    "pt": {"anteontem": -2, "ontem": -1, "hoje": 0, "depois de amanhã": 2, "amanhã": 1},
    "pl": {"przedwczoraj": -2, "wczoraj": -1, "dzisiaj": 0, "dziś": 0, "pojutrze": 2, "jutro": 1},
    "ru": {"позавчера": -2, "вчера": -1, "сегодня": 0, "послезавтра": 2, "завтра": 1},
    "zh": {"前天": -2, "昨天": -1, "昨晚": -1, "今天": 0, "后天": 2, "明天": 1},
    "ja": {"一昨日": -2, "おととい": -2, "昨日": -1, "昨夜": -1, "今日": 0, "今朝": 0, "明後日": 2, "明日": 1},
}
_PERIODS: Final = {
    "de": {
        r"letzte[nr]? woche": ("week", -1),
        r"nächste[nr]? woche": ("week", 1),
        r"letzte[nmr]? monat": ("month", -1),
        r"nächste[nmr]? monat": ("month", 1),
        r"letzte[ns]? jahr": ("year", -1),
        r"nächste[ns]? jahr": ("year", 1),
    },
    "es": {
        "la semana pasada": ("week", -1),
        "la próxima semana": ("week", 1),
        "el mes pasado": ("month", -1),
        "el próximo mes": ("month", 1),
        "el año pasado": ("year", -1),
        "el próximo año": ("year", 1),
    },
    "fr": {
        "la semaine dernière": ("week", -1),
        "la semaine prochaine": ("week", 1),
        "le mois dernier": ("month", -1),
        "le mois prochain": ("month", 1),
        "l'année dernière|l'an dernier": ("year", -1),
        "l'année prochaine|l'an prochain": ("year", 1),
    },
    "it": {
        "la settimana scorsa|la scorsa settimana": ("week", -1),
        "la settimana prossima|la prossima settimana": ("week", 1),
        "il mese scorso|lo scorso mese": ("month", -1),
        "il mese prossimo|il prossimo mese": ("month", 1),
        "l'anno scorso|lo scorso anno": ("year", -1),
        "l'anno prossimo|il prossimo anno": ("year", 1),
    },
    "nl": {
        "vorige week": ("week", -1),
        "volgende week": ("week", 1),
        "vorige maand": ("month", -1),
        "volgende maand": ("month", 1),
        "vorig jaar": ("year", -1),
        "volgend jaar": ("year", 1),
    },
    "pt": {
        "na semana passada|semana passada": ("week", -1),
        "na próxima semana|semana que vem": ("week", 1),
        "no mês passado|mês passado": ("month", -1),
        "no próximo mês|mês que vem": ("month", 1),
        "no ano passado|ano passado": ("year", -1),
        "no próximo ano|ano que vem": ("year", 1),
    },
    "pl": {
        "w zeszłym tygodniu": ("week", -1),
        "w przyszłym tygodniu": ("week", 1),
        "w zeszłym miesiącu": ("month", -1),
        "w przyszłym miesiącu": ("month", 1),
        "w zeszłym roku": ("year", -1),
        "w przyszłym roku": ("year", 1),
    },
    "ru": {
        "на прошлой неделе": ("week", -1),
        "на следующей неделе": ("week", 1),
        "в прошлом месяце": ("month", -1),
        "в следующем месяце": ("month", 1),
        "в прошлом году": ("year", -1),
        "в следующем году": ("year", 1),
    },
    "zh": {
        "上周|上个?星期": ("week", -1),
        "下周|下个?星期": ("week", 1),
        "上个?月": ("month", -1),
        "下个?月": ("month", 1),
        "去年": ("year", -1),
        "明年": ("year", 1),
    },
    "ja": {
        "先週": ("week", -1),
        "来週": ("week", 1),
        "先月": ("month", -1),
        "来月": ("month", 1),
        "去年|昨年": ("year", -1),
        "来年": ("year", 1),
    },
}
_UNSPACED: Final = frozenset({"zh", "ja"})


def near_dates(language: str) -> list[tuple[re.Pattern[str], str, int]]:
    """Patterns of a language with the unit (day, week, month, year) and how many of them away they are."""
    return _NEAR.get(language, [])


def _near(language: str) -> list[tuple[re.Pattern[str], str, int]]:
    words = [(re.escape(word), "day", count) for word, count in _DAYS[language].items()]
    words += [(pattern, unit, count) for pattern, (unit, count) in _PERIODS[language].items()]
    edge = "" if language in _UNSPACED else r"\b"
    return [(re.compile(f"{edge}(?:{pattern}){edge}", re.I), unit, count) for pattern, unit, count in words]


_NEAR: Final = {language: _near(language) for language in _DAYS}
