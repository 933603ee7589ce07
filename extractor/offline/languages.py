"""Cues of languages other than English: enough to keep what is plainly said, and to leave the rest alone.

The embedder knows English only, so of other languages nothing is kept without a cue.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from extractor.offline.prototypes import EVENTS, PREFERENCES, PROFILE
from extractor.offline.sentences import words_of


@dataclass(frozen=True, slots=True)
class Language:
    """Cues of one language: `kinds` for what is kept, `doubt` for what is asked, wished, hedged or of the moment."""

    function_words: frozenset[str]
    kinds: Mapping[str, re.Pattern[str]]
    doubt: re.Pattern[str]


def _language(function_words: str, *, profile: str, preferences: str, events: str, doubt: str) -> Language:
    return Language(
        frozenset(function_words.split()),
        {
            PREFERENCES: re.compile(rf"\b(?:{preferences})", re.I),
            EVENTS: re.compile(rf"\b(?:{events})", re.I),
            PROFILE: re.compile(rf"\b(?:{profile})", re.I),
        },
        re.compile(rf"\b(?:{doubt})", re.I),
    )


def _unspaced(*, profile: str, preferences: str, events: str, doubt: str) -> Language:
    return Language(
        frozenset(),
        {PREFERENCES: re.compile(preferences), EVENTS: re.compile(events), PROFILE: re.compile(profile)},
        re.compile(doubt),
    )


_ENGLISH: Final = frozenset(
    """
    i i'm i've i'd my our the and with for you your he she we they this that these those have has had are was were been
    from not it's don't of on at by is in to it as an be or so but if me us will would can
    """.split()
)
_LANGUAGES: Final = {
    "de": _language(
        "ich und der die das nicht ist habe hat wir mein meine meinen meiner unser unsere ein eine einen dem "
        "den mir mich auf mit für im zu seit bin sind auch wie du es von als wenn bitte immer nur am bei",
        profile=r"ich (?:wohne|lebe|arbeite|studiere|bin (?:\w+ )*(?:[A-ZÄÖÜ]\w+|allergisch|verheiratet|geschieden|"
        r"ledig|schwanger|"
        r"vegetarisch|vegan|aus)|komme aus|heiße|habe (?:\w+ )*(?:kinder|söhne|töchter|geschwister|\w*allergie|"
        r"diabetes|asthma|hund|katze)|"
        r"leite|unterrichte|spreche|vertrage kein\w*|esse kein\w*|trinke kein\w*)|mein(?:e|er)? (?:name|frau|mann|"
        r"tochter|sohn|"
        r"muttersprache|beruf|geburtstag|hund|katze|mutter|vater|bruder|schwester|chefin?|partnerin?|freundin?)|"
        r"wir (?:wohnen|leben|haben (?:zwei|drei|\w+ )?kinder)",
        preferences=r"ich (?:mag|liebe|hasse|bevorzuge|genieße|esse am liebsten|trinke am liebsten|möchte (?:immer|"
        r"nie|keine)|will (?:immer|nie|keine))|"
        r"mir (?:gefällt|schmeckt|ist \w+ lieber)|(?:am )?liebsten|lieber\b|lieblings\w+|bitte (?:immer|nie|keine|"
        r"nur)|antworte (?:mir )?(?:immer|bitte|nur)|"
        r"ich (?:trinke|nehme|fahre|gehe|höre|lese) (?:\w+ )*(?:gern|gerne|immer|nie|lieber)|"
        r"kann \w+ nicht (?:leiden|ausstehen)",
        events=r"(?:habe|haben|bin|sind|wurde|wurden|ist|hat) (?:\w+ ){0,12}?(?:\w*ge\w+(?:t|en)|unterschrieben|"
        r"verkauft|bekommen|begonnen|entschieden|"
        r"verloren|beschlossen|besucht|erhalten|verlassen|bestanden|umgezogen)\b|(?:gestern|vorgestern|"
        r"letzte[nrs]? (?:woche|monat|jahr))|"
        r"(?:morgen|nächste[nrs]? (?:woche|monat|jahr)) (?:\w+ )*(?:fliege|fahre|ziehe|beginne|fange|habe|heirate)|"
        r"wir ziehen|ich ziehe",
        doubt=r"(?:vielleicht|würde|hätte|wäre|könnte|möglicherweise|wahrscheinlich|wenn ich|falls|stell dir vor|"
        r"angenommen|danke|bitte (?:mach|schreib|zeig)|"
        r"kannst du|könntest du|kennst du|weißt du|bin (?:\w+ )*(?:müde|hungrig|froh|gespannt|genervt|traurig|"
        r"glücklich)|gerade (?:total|so|ein)|ich glaube|"
        r"ich überlege|ich weiß nicht|^(?:was|wie|wo|wann|warum|wer)\b|übersetze|hallo|guten (?:tag|morgen|abend)|"
        r"nur ein scherz|haha)",
    ),
    "es": _language(
        "el la los las que y mi mis yo es soy de en un una no me nos con por para del al mucho muy se lo su "
        "está he hemos",
        profile=r"(?:soy|vivo|trabajo|estudio|estudié|nací|me llamo|tengo (?:\w+ )*(?:años|hijos|hijas|hermanos|"
        r"hermanas|alergia|diabetes|asma|un perro|un gato)|"
        r"vengo de|hablo|vivimos|estoy casad[oa]|mi (?:esposa|esposo|marido|mujer|hija|hijo|madre|padre|hermana|"
        r"hermano|cumpleaños|perro|gato|lengua))",
        preferences=r"(?:prefiero|me (?:gusta|gustan|encanta|encantan)|no (?:me gusta|me gustan|soporto)|odio|"
        r"detesto|adoro|mi \w+ (?:favorit[oa]|preferid[oa])|"
        r"siempre (?:tomo|uso|quiero|pido)|por favor,? (?:siempre|nunca)|nunca (?:me|uses))",
        events=r"(?:ayer|anteayer|anoche|la semana pasada|el (?:mes|año|lunes|martes|miércoles|jueves|viernes|sábado|"
        r"domingo) pasado|he \w+(?:ado|ido|to|cho)|"
        r"hemos \w+(?:ado|ido|to|cho)|(?:me|nos) (?:mudé|casé|mudamos|casamos|compré)|(?:empecé|compré|compramos|"
        r"firmé|terminé|vendí|vendimos|adoptamos|decidimos|"
        r"decidí|conseguí|gané|perdí|viajé|fui a|fuimos a|nació))",
        doubt=r"(?:quizás|quizá|tal vez|a lo mejor|si (?:yo )?\w+(?:ara|era|iera|iese|ase)|iría|me gustaría|ojalá|"
        r"gracias|hola|creo que|no sé|estoy (?:muy |un poco |tan )?"
        r"(?:cansad|feliz|triste|aburrid|ocupad)|tengo (?:mucha |mucho )?(?:hambre|sueño|frío|calor|sed)|imagina|"
        r"traduce|^(?:qué|cómo|dónde|cuándo)\b|puedes|podrías|es broma|jaja)",
    ),
    "fr": _language(
        "le la les je j'ai et est mon ma mes nous des un une du de pas ne ce que qui dans pour sur avec en au "
        "aux suis c'est il elle",
        profile=r"(?:je suis (?:\w+ )*(?:allergique|végétari\w+|médecin|infirmi\w+|professeure?|étudiante?|"
        r"ingénieure?|mariée?|né|née|originaire|de|\w+(?:eur|euse|ien|ienne|iste|ier|ière))\b|"
        r"j'habite|je vis|je travaille|je m'appelle|j'ai (?:\w+ )*(?:ans|enfants|filles?|fils|frères?|sœurs?|"
        r"allergie|diabète|asthme|un chien|un chat)|je viens de|"
        r"j'étudie|je parle|nous (?:habitons|vivons)|ma (?:femme|fille|sœur|mère|langue)|mon (?:mari|fils|frère|père|"
        r"anniversaire|chien|chat|métier))",
        preferences=r"(?:je (?:préfère|n'aime pas|déteste|ne supporte pas)|j'(?:aime|adore)|mon \w+ préféré|"
        r"ma \w+ préférée|(?:réponds|écris)(?:-moi)? toujours|toujours en|jamais de|s'il te plaît,? toujours)",
        events=r"(?:hier|avant-hier|la semaine dernière|le mois dernier|l'année dernière|(?:j'ai|nous avons|"
        r"on a) \w+(?:é|i|u|is|it|ert)\b|(?:je suis|nous sommes) (?:allée?s?|partie?s?|arrivée?s?|nés?)|"
        r"je (?:me suis|déménage|commence)|nous (?:déménageons|nous sommes))",
        doubt=r"(?:peut-être|si (?:j'|je |nous )?\w+(?:ais|ions|ait)|j'aimerais|je voudrais|merci|bonjour|salut|"
        r"je (?:pense|crois|ne sais pas)|(?:je suis|tellement) (?:\w+ )?(?:fatigu|content|triste|désol|press)|"
        r"j'ai (?:faim|froid|chaud|soif|sommeil)|imagine|traduis|est-ce que|^(?:comment|pourquoi|quand est|où)\b|"
        r"peux-tu|pourrais|je plaisante|mdr)",
    ),
    "it": _language(
        "il lo la gli che di sono mio mia non un una per con e mi ho siamo è del della al nel io abbiamo",
        profile=r"(?:(?:vivo|lavoro|abito|studio|insegno|vengo da|mi chiamo|parlo|viviamo|abitiamo)\b|"
        r"sono (?:\w+ )*(?:allergic|nat[oa]|sposat|vegetarian|vegan|un |una |di )\w*|"
        r"ho (?:\w+ )*(?:anni|figli|figlie|fratelli|sorelle|allergia|diabete|asma|un cane|un gatto)|mi[oa] (?:moglie|"
        r"marito|figlia|figlio|madre|padre|sorella|fratello|compleanno))",
        preferences=r"(?:preferisco|(?:non )?mi (?:piace|piacciono)|odio|detesto|adoro|amo|non sopporto|preferit[oa]|"
        r"rispondi sempre|sempre in)",
        events=r"(?:ieri|l'altro ieri|la settimana scorsa|il mese scorso|l'anno scorso|(?:ho|abbiamo) \w+(?:ato|uto|"
        r"ito|so|to)\b|(?:sono|siamo) (?:andat|partit|arrivat|nat)\w|mi sono \w+at)",
        doubt=r"(?:forse|magari|se (?:io )?\w+(?:ssi|essi)|vorrei|mi piacerebbe|grazie|ciao|buongiorno|credo|penso|"
        r"non so|(?:sono|sto) (?:\w+ )?(?:stanc|felic|trist|annoiat|occupat)|ho (?:fame|sete|sonno|freddo|caldo)|"
        r"immagina|traduci|^(?:dove|come|quando|perché|cosa)\b|puoi|potresti|scherzo)",
    ),
    "nl": _language(
        "ik het een mijn niet wij van en de dat die met voor naar op te zijn heb hebben ben ons onze om maar "
        "bij ook me wat je",
        profile=r"ik (?:woon|werk|studeer|heet|kom uit|spreek|geef les|ben (?:\w+ )*(?:allergisch|getrouwd|"
        r"vegetariër|geboren|een|opgegroeid)|ben \w+(?:er|eur|ist|kundige|arts)\b|"
        r"heb (?:\w+ )*(?:kinderen|dochters?|zo(?:on|nen)|broers?|zus(?:sen)?|allergie|diabetes|astma|hond|kat))|"
        r"wij wonen|mijn (?:vrouw|man|dochter|zoon|moeder|vader|zus|broer|verjaardag|naam|vriendin?|baas)",
        preferences=r"(?:ik (?:hou (?:\w+ )*(?:niet )?van|haat|vind \w+ (?:lekker|leuk|fijn|vreselijk)|wil (?:altijd|"
        r"nooit|geen))|liever|het liefst|favoriete|lievelings\w+|antwoord (?:altijd|me)|altijd (?:in|met)|"
        r"drink (?:graag|geen)|eet (?:graag|geen)|lees graag)",
        events=r"(?:gisteren|eergisteren|vorige (?:week|maand)|vorig jaar|(?:heb|hebben|ben|zijn|is|"
        r"werd) (?:\w+ ){0,10}?ge\w+(?:d|t|en)\b|(?:heb|hebben) (?:\w+ ){0,10}?(?:verkocht|besloten|ondertekend|"
        r"verhuisd|gekocht))",
        doubt=r"(?:misschien|zou(?:den)?|als ik|stel dat|bedankt|dank je|hallo|hoi|ik denk|ik weet niet|"
        r"ik ben (?:\w+ )?(?:moe|blij|verdrietig|boos|druk)|ik heb (?:honger|dorst|slaap)|vertaal|^(?:wat|hoe|"
        r"waar|wanneer|waarom)\b|kun je|grapje)",
    ),
    "pt": _language(
        "o os as que e meu minha eu não um uma em no na do da de com para por sou estou é tenho me nós muito",
        profile=r"(?:moro|vivo|trabalho|estudo|nasci|me chamo|chamo-me|falo|moramos|sou (?:\w+ )*(?:alérgic|casad|"
        r"vegetarian|vegan|de|um|uma|enfermeir|médic|professor|engenheir)\w*|sou \w+(?:or|ora|ista|eiro|eira)\b|"
        r"tenho (?:\w+ )*(?:anos|filhos|filhas|irmãos|irmãs|alergia|diabetes|asma|um cão|um cachorro|um gato)|(?:meu|"
        r"minha) (?:esposa|mulher|marido|filha|filho|mãe|pai|irmã|irmão|aniversário))",
        preferences=r"(?:prefiro|adoro|odeio|detesto|(?:não )?gosto (?:de|muito)|amo|não suporto|favorit[oa]|"
        r"preferid[oa]|responda sempre|sempre em)",
        events=r"(?:ontem|anteontem|na semana passada|no mês passado|no ano passado|(?:comprei|compramos|vendi|"
        r"assinei|comecei|terminei|mudei|mudamos|casei|adotei|adotamos|decidi|decidimos|ganhei|perdi|viajei|"
        r"fui a|fomos a|nasceu))",
        doubt=r"(?:talvez|quem sabe|se eu \w+(?:sse|asse)|gostaria|queria|obrigad|olá|oi\b|acho que|não sei|"
        r"estou (?:\w+ )?(?:cansad|feliz|triste|ocupad)|estou com (?:fome|sono|frio|sede)|imagine|traduza|"
        r"^(?:onde|como|quando|por que)\b|você pode|brincadeira|kkk)",
    ),
    "pl": _language(
        "i w na nie się jest mam mój moja z do że to jestem mi mnie od przez po lub ale jak",
        profile=r"(?:mieszkam|pracuję|studiuję|uczę|nazywam się|jestem (?:\w+ )*(?:uczulon|mężatk|żonat|wegetarian|z|"
        r"\w+(?:em|ką|rzem|iem|istą|ą)\b)\w*|urodził[ae]m się|mówię po|mam (?:\w+ )*(?:lat|dzieci|córk|syn|brat|"
        r"siostr|alergi|cukrzyc|astm|psa|kota)\w*|mieszkamy|mo(?:ja|je|jego|im|j[aą]) (?:żon|córk|siostr|mam|"
        r"matk))",
        preferences=r"(?:wolę|(?:nie )?lubię|uwielbiam|nienawidzę|kocham|ulubion\w+|nie znoszę|zawsze (?:odpowiadaj|"
        r"pisz))",
        events=r"(?:wczoraj|przedwczoraj|w zeszłym (?:tygodniu|miesiącu|roku)|kupił[ae]m|kupiliśmy|"
        r"zaczął?[eę]?[łl]?[ae]?m|podpisał[ae]m|przeprowadził[ae]m|sprzedał[ae]m|sprzedaliśmy|skończył[ae]m|"
        r"postanowi\w+|zdał[ae]m|wyjechał[ae]m)",
        doubt=r"(?:może|być może|gdybym|chciał(?:a)?bym|dziękuję|dzięki|cześć|dzień dobry|chyba|nie wiem|"
        r"jestem (?:\w+ )?(?:zmęczon|głodn|szczęśliw|smutn|zajęt)|wyobraź|przetłumacz|^(?:czy|gdzie|kiedy|jak|"
        r"dlaczego)\b|żart)",
    ),
    "ru": _language(
        "я и в не на мой моя что с по у мне меня мы это как за к от из но",
        profile=r"(?:я (?:\w+ )?(?:живу|работаю|учусь|родил(?:ся|ась)|вырос(?:ла)?|преподаю|говорю по)|меня зовут|"
        r"у меня (?:\w+ )*(?:аллергия|дет(?:и|ей)|дочь|сын|брат|сестра|диабет|астма|собака|кошка|кот)|"
        r"мне \w+ (?:лет|года?)|мы живём|мы живем|"
        r"мо(?:й|я|и) (?:жена|муж|дочь|сын|мама|отец|сестра|брат|родители|собака|кошка)|я (?:врач|учитель|инженер|"
        r"программист|студент\w*|вегетариан\w+|по профессии))",
        preferences=r"(?:(?:не )?люблю|предпочитаю|обожаю|ненавижу|терпеть не могу|мне (?:не )?нравится|любим(?:ый|"
        r"ая|ое|ые)|всегда (?:отвечай|пиши)|больше нравится)",
        events=r"(?:вчера|позавчера|на прошлой неделе|в прошлом (?:месяце|году)|(?:купил|продал|подписал|переехал|"
        r"закончил|начал|решил|сдал|получил)(?:а|и)?\b)",
        doubt=r"(?:может быть|возможно|наверное|если бы|хотел(?:а)? бы|спасибо|привет|здравствуйте|думаю|не знаю|"
        r"я (?:\w+ )?(?:устал|голод|рад|занят)|представь|переведи|^(?:где|когда|как|почему|ты)\b|шучу|ли\b)",
    ),
    "zh": _unspaced(
        profile=r"我(?:们)?(?:现在)?(?:住在|在.{1,12}(?:工作|上班|上学|读书)|是(?:一名|一个|一位)?[^的吗]{1,10}(?:师|生|员|人|家|医生|护士|父亲|母亲|妈妈|"
        r"爸爸)|叫|来自|出生|今年.{1,4}岁|对.{1,8}过敏|有.{0,4}(?:个孩子|个女儿|个儿子|只猫|只狗|糖尿病|哮喘))|我(?:的)?(?:妻子|丈夫|老婆|老公|女儿|儿子|妈妈|爸爸|"
        r"姐姐|妹妹|哥哥|弟弟|生日)",
        preferences=r"我(?:很|非常|最|更|特别|一直|从来|也|比较)?(?:不)?(?:喜欢|爱(?!人)|讨厌|偏好|习惯)|请(?:总是|一直|永远|以后都|不要总)|以后(?:请|都)|"
        r"我不(?:吃|喝)",
        events=r"(?:昨天|前天|上周|上个?月|去年|今年.{0,3}月|明天|下周|下个?月).{0,20}(?:了|去|搬|买|开始|参加|结婚|出差|飞)|我们?(?:刚|已经|刚刚|终于).{1,14}了|"
        r"我们?决定",
        doubt=r"吗|呢|什么|怎么|哪|如果|要是|也许|可能|大概|谢谢|你好|您好|再见|累|饿|困|假如|翻译|开玩笑|哈哈|请问|能不能|希望",
    ),
    "ja": _unspaced(
        profile=r"(?:住んで|住み|働いて|勤め|大学生|(?:です|と申します)。?$.{0}(?<=(?:師|士|員|医|生|人|家)です。)|(?:師|士|員|医者|学生|エンジニア|デザイナー|"
        r"出身)(?:です|をして|として)|アレルギー|生まれ|(?:歳|才)です|子供が|娘が|息子が|妻は|夫は|犬を飼|猫を飼)",
        preferences=r"(?:が|は|も)?(?:大?好き|嫌い|苦手)(?:です|だ|。|$|で)|(?:ほう|方)が(?:好き|いい)|いつも.{1,15}(?:して|答えて|使って)ください|好んで",
        events=r"(?:昨日|一昨日|おととい|先週|先月|去年|昨年|今朝|来週|来月|明日).{1,40}(?:ました|た。|ます|する|予定|た$)|決めました|引っ越しました|買いました|始めました",
        doubt=r"か？|か。|ですか|ますか|もし|たら|かもしれ|たぶん|多分|ありがとう|こんにちは|おはよう|さようなら|疲れ|お腹|眠い|と思い|たい(?:です|な)|翻訳|冗談|でしょう",
    ),
}
# What never happened is no event.
_NEVER: Final = {
    "de": re.compile(r"\b(?:nie|niemals|nichts|niemand\w*|noch nie|sollten? eigentlich)\b", re.I),
    "es": re.compile(r"\b(?:nunca|jamás|nada|nadie)\b", re.I),
    "fr": re.compile(r"\b(?:jamais|rien|personne n)\b", re.I),
    "it": re.compile(r"\b(?:mai|niente|nulla|nessuno)\b", re.I),
    "nl": re.compile(r"\b(?:nooit|niets|niemand)\b", re.I),
    "pt": re.compile(r"\b(?:nunca|jamais|nada|ninguém)\b", re.I),
    "pl": re.compile(r"\b(?:nigdy|nic|nikt)\b", re.I),
    "ru": re.compile(r"\b(?:никогда|ничего|никто)\b", re.I),
    "zh": re.compile(r"从来没|从没|从未|什么都没|没有"),
    "ja": re.compile(r"ことがない|ことがありません|ませんでした|なかった"),
}
_HAN = re.compile(r"[\u3400-\u9fff]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")
_OTHER_SCRIPT = re.compile(r"[^\W\d_A-Za-z\u00c0-\u024f\u1e00-\u1eff]")


@lru_cache(maxsize=4096)
def language_of(text: str) -> str:
    """ISO 639 code of the language that it seems to be in; `und` for one that has no cues here, `en` when in doubt."""
    if _KANA.search(text):
        return "ja"
    if len(_HAN.findall(text)) * 2 > len(text) / 2:
        return "zh"
    if len(_CYRILLIC.findall(text)) * 2 > len(text):
        return "ru"
    if len(_OTHER_SCRIPT.findall(text)) * 2 > len(text):
        return "und"
    words = [word.lower().replace("’", "'") for word in words_of(text)]
    best, most = "en", sum(word in _ENGLISH for word in words)
    if 2 * most >= len(words):
        return best
    for code, language in _LANGUAGES.items():
        # A cue of its own tells apart those that share their small words.
        shows = any(cue.search(text) for cue in language.kinds.values())
        count = sum(word in language.function_words for word in words) + shows
        if count > most:
            best, most = code, count
    return best


def kind_of(text: str, language: str) -> str:
    """The kind of statement that its cues show; empty without one, or with a reason not to keep it."""
    known = _LANGUAGES.get(language)
    if known is None or known.doubt.search(text):
        return ""
    kind = next((kind for kind, cue in known.kinds.items() if cue.search(text)), "")
    return "" if kind == EVENTS and _NEVER[language].search(text) else kind
